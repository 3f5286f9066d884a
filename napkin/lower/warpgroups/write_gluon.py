"""A warp-specialised CTA as a Gluon kernel: one warp asks for chunks, each warpgroup folds those of
its group.

Chunks lie in rings of shared memory. A barrier for each place says that it is full, another that
every group has read it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from napkin.lower import syntax as sx
from napkin.lower.parameters import Written, arguments_of, entry_of, passed
from napkin.lower.printer import comment, function
from napkin.lower.trim import loaded, trimmed
from napkin.lower.warpgroups import chunks, sums
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import free
from napkin.lower.warpgroups.gluon_scope import CtaScope
from napkin.lower.warpgroups.iterations import Rows
from napkin.lower.warpgroups.resources import LOADING, registers
from napkin.lower.warpgroups.rings import Rings
from napkin.schedule import WARPS

ADDRESS, NUMBER = 8, 4
"""Bytes of an address, and of a number or where something begins."""


def write_cta(cta: SpecialisedCta) -> Written:
    """The Gluon kernel of a warp-specialised CTA."""
    rings = Rings(cta)
    rings.emitter.count(cta.program.roots)
    stages = sx.assign(rings.scope.stages, cta.stages, rings.lang.word("constexpr"))
    first = [rings.index_type(), stages, *rings.places.steps()]
    if cta.sums:
        parts = sums.first(rings), sums.loads(rings), sums.folds(rings)
    else:
        parts = chunks.first(rings), chunks.loads(rings), Rows(rings).folds()
    own = {"loads": parts[1], "rows": parts[2]}
    own |= {"adds": chunks.adds(rings)} if cta.program.adds else {}
    return _written(rings, [*first, *parts[0]], own)


def _written(rings: Rings, first: list[ast.stmt], parts: Mapping[str, list[ast.stmt]]) -> Written:
    """The kernel whose blocks begin with `first`, and then give one warp what loads and each
    warpgroup its rows."""
    scope, lang = rings.scope, rings.lang
    name = scope.program.kernel.name
    fixed = {a.name for a in arguments_of(scope) if a.constexpr} | {scope.stages}
    own = {scope.warpgroup}
    bodies = {part: trimmed(body) for part, body in parts.items()}
    texts: list[str] = []
    given: dict[str, list[str]] = {}
    for part, body in bodies.items():
        used = free(body)
        given[part] = sorted(used - own, key=lambda n: (n in fixed, n))
        names = [*given[part], *sorted(own & used)]
        known = {n: n in fixed | own for n in names}
        texts.append(function(lang, f"_{name}_{part}", known, body))
    body = trimmed([*first, comment("its warps"), _specialised(scope, given)])
    read = {n for part in (*bodies.values(), body) for s in part for n in loaded(s)}
    arguments = passed({n for s in body for n in loaded(s)}, scope)
    texts.append(function(lang, name, {a.name: a.constexpr for a in arguments}, body))
    text = "\n\n".join([*lang.functions(read), *texts])
    handed = {n for names in given.values() for n in names} - fixed
    return Written(text, entry_of(arguments, scope.program), _bytes(handed, rings))


def _bytes(handed: Iterable[str], rings: Rings) -> int:
    """Bytes of what warps are handed, each once, as Triton counts them (`getCaptureSizeAlign`): of
    tensors and shared memory an address, of shared memory where a part of it begins, too."""
    tensors = {a.name for a in arguments_of(rings.scope) if a.kind == "tensor"}
    out = 0
    for name in handed:
        out += ADDRESS if name in tensors or name in rings.rank else NUMBER
        out += NUMBER * rings.rank.get(name, 0)
    return out


def _specialised(scope: CtaScope, given: Mapping[str, list[str]]) -> ast.stmt:
    """The call that gives the warps of a block what they run."""
    name, groups = scope.program.kernel.name, scope.cta.groups
    rows = (sx.pair(*given["rows"], w) for w in range(groups))
    parts = [sx.pair(f"_{name}_rows", values) for values in rows]
    alone = [part for part in given if part != "rows"]
    parts += [sx.pair(f"_{name}_{part}", sx.pair(*given[part])) for part in alone]
    warps = [WARPS] * (groups - 1) + [1] * len(alone)
    own = [registers(groups)] * (groups - 1) + [LOADING] * len(alone)
    lists = map(sx.tuple_of, (parts, warps, own))
    return ast.Expr(scope.lang("warp_specialize", *lists))
