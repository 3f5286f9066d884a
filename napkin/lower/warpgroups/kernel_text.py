"""The text of a warp-specialised CTA's kernel: what every block does first, and the parts that its
warps run."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from napkin.lower import syntax as sx
from napkin.lower.printer import comment, function
from napkin.lower.signature import Written, arguments_of, entry_of, passed
from napkin.lower.trim import loaded, trimmed
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import free
from napkin.lower.warpgroups.gluon_scope import CtaScope
from napkin.lower.warpgroups.room import LOADING, registers
from napkin.schedule import WARPS


@dataclass(frozen=True)
class Text:
    """A kernel of warpgroups.

    Attributes:
        written: its text, and how it is called.
        scope: its names.
        bodies: the statements of its parts.
        constants: names of constants that every part is given.
    """

    written: Written
    scope: CtaScope
    bodies: Sequence[Sequence[ast.stmt]]
    constants: frozenset[str]


def text_of(
    scope: CtaScope, first: list[ast.stmt], loads: list[ast.stmt], rows: list[ast.stmt]
) -> Text:
    """The kernel whose blocks begin with `first`, and then give one warp `loads` and each warpgroup
    `rows`."""
    name, cta, lang = scope.program.kernel.name, scope.cta, scope.lang
    fixed = {a.name for a in arguments_of(scope) if a.constexpr} | {scope.stages}
    own = {scope.warpgroup}
    bodies = {"loads": trimmed(loads), "rows": trimmed(rows)}
    texts: list[str] = []
    given: dict[str, list[str]] = {}
    for part, body in bodies.items():
        used = free(body)
        given[part] = sorted(used - own, key=lambda n: (n in fixed, n))
        names = [*given[part], *sorted(own & used)]
        known = {n: n in fixed | own for n in names}
        texts.append(function(lang, f"_{name}_{part}", known, body))
    constants = frozenset(
        ast.unparse(s.targets[0])
        for s in first
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant)
    )
    body = trimmed([*first, comment("its warps"), _specialised(cta, scope, given)])
    read = {n for part in (*bodies.values(), body) for s in part for n in loaded(s)}
    arguments = passed({n for s in body for n in loaded(s)}, scope)
    texts.append(function(lang, name, {a.name: a.constexpr for a in arguments}, body))
    text = "\n\n".join([*lang.functions(read), *texts])
    made = Written(text, entry_of(arguments, scope.program))
    return Text(made, scope, tuple(bodies.values()), constants)


def _specialised(cta: SpecialisedCta, scope: CtaScope, given: Mapping[str, list[str]]) -> ast.stmt:
    name = scope.program.kernel.name
    rows = (sx.pair(*given["rows"], w) for w in range(cta.groups))
    parts = [sx.pair(f"_{name}_rows", values) for values in rows]
    parts.append(sx.pair(f"_{name}_loads", sx.pair(*given["loads"])))
    warps = [WARPS] * (cta.groups - 1) + [1]
    own = [registers(cta.groups)] * (cta.groups - 1) + [LOADING]
    lists = map(sx.tuple_of, (parts, warps, own))
    return ast.Expr(scope.lang("warp_specialize", *lists))
