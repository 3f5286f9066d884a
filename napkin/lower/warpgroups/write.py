"""A band as a Gluon kernel: one warp asks for chunks, each warpgroup folds those of its rows.

Chunks lie in rings of shared memory. A barrier for each place says that it is full, another that
every group has read it. A turn begins with the products of two tiles; while these are made, so are
those that the turn before has left, of rows that it computed (FlashAttention-3, arXiv 2407.08608,
section 3.2, for one algorithm; here for any state that only adds a product).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import replace

from napkin.derive.kernel import tensor_of
from napkin.diagram.keys.terms import spec_of
from napkin.lower import syntax as sx
from napkin.lower.compiler import installed
from napkin.lower.launch import WARPS, Argument, Entry
from napkin.lower.printer import comment
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.band import Band
from napkin.lower.warpgroups.gluon import captured, free, function, helper, in_gluon, trimmed
from napkin.lower.warpgroups.room import LOADING, registers
from napkin.lower.warpgroups.rows import Rows
from napkin.lower.write import Written

CONSTANTS_APART = (3, 9)
"""The Triton from which constants are not passed: every part has its own. 3.6 passes them; the
versions between were not read."""


class _Writer(Rows):
    def __init__(self, band: Band) -> None:
        super().__init__(band)
        self.bodies: list[list[ast.stmt]] = []
        self.zeros: set[str] = set()

    def function(self) -> Written:
        band, scope, emitter = self.band, self.scope, self.emitter
        emitter.count(self.program.roots)
        name = self.kernel.name
        out: list[ast.stmt] = [
            self.index_type(),
            sx.assign(scope.stages, sx.const(band.stages), "gl.constexpr"),
            *self.steps(),
            *self.positions(),
            *self.bases(),
        ]
        if self.visiting:
            keys = spec_of(self.visiting.seen.keys).text
            out.append(comment(f"the keys that this band visits: {keys}"))
            out += self.visiting.prologue()
        out += self._rings()
        loads, rows = self._loads(), self._rows()
        arguments = self.arguments()
        fixed = {a.name for a in arguments if a.constexpr} | {scope.stages}
        own = {scope.warpgroup}
        texts = [helper(h) for h in sorted(emitter.helpers)]
        given: dict[str, list[str]] = {}
        for part, body in (("loads", loads), ("rows", rows)):
            body = trimmed(in_gluon(body))
            used = free(body)
            self.bodies.append(body)
            given[part] = sorted(used - own, key=lambda n: (n in fixed, n))
            names = [*given[part], *sorted(own & used)]
            typed = [(n, "gl.constexpr" if n in fixed | own else "") for n in names]
            texts.append(function(f"{name}_{part}", typed, body))
        self.zeros = {
            ast.unparse(s.targets[0])
            for s in out
            if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant)
        }
        made = [comment("its warps"), self._specialised(name, given)]
        body = in_gluon([*out, *made])
        typed = [(a.name, "gl.constexpr" if a.constexpr else "") for a in arguments]
        texts.append(function(name, typed, body))
        entry = self.entry(arguments)
        return Written(name, "\n\n".join(texts), arguments, self.kernel.group, entry)

    def entry(self, arguments: tuple[Argument, ...]) -> Entry:
        return replace(super().entry(arguments), band=(self.band.axis, self.band.groups))

    def bases(self) -> list[ast.stmt]:
        """Pointers of tensors without a descriptor."""
        out = [s for s in super().bases() if not isinstance(s, ast.If)]
        return out if len(out) > 1 else []

    def _specialised(self, name: str, given: dict[str, list[str]]) -> ast.stmt:
        band = self.band
        rows = [sx.name(n) for n in given["rows"]]
        parts = [_pairs(f"{name}_rows", [*rows, sx.const(w)]) for w in range(band.groups)]
        parts.append(_pairs(f"{name}_loads", [sx.name(n) for n in given["loads"]]))
        warps = [WARPS] * (band.groups - 1) + [1]
        own = [registers(band.groups)] * (band.groups - 1) + [LOADING]
        lists = [sx.tuple_of(map(sx.const, x)) for x in (warps, own)]
        return ast.Expr(sx.call("gl.warp_specialize", sx.tuple_of(parts), *lists))


def _pairs(function: str, arguments: Iterable[Expr]) -> Expr:
    return ast.Tuple([sx.name(function), ast.Tuple(list(arguments), ast.Load())], ast.Load())


def write_band(band: Band) -> Written:
    """The Gluon kernel of a band."""
    return _Writer(band).function()


def passed(band: Band, even: Collection[str]) -> list[str]:
    """What the block's first warps pass to the others of a band: "descriptor" (a pointer, too),
    "scalar", or "ring R", of R axes.

    Args:
        even: the axes that bands divide.
    """
    writer = _Writer(band)
    made = writer.function()
    fixed = {a.name for a in made.arguments if a.constexpr} | {writer.scope.stages}
    known = {writer.scope.even(a) for a in even}
    names = captured(writer.bodies, known) - fixed - {writer.scope.warpgroup}
    if installed() >= CONSTANTS_APART:
        names -= writer.zeros
    scope, program = writer.scope, band.program
    boxed = {tensor_of(n): axes for n, axes in program.boxes.items()} | dict(program.stores)
    kinds = {scope.tensor(t): "descriptor" for t in scope.tensors}
    for t, axes in boxed.items():
        kinds[scope.ring(t)] = f"ring {len(axes) + 1}"
        kinds |= {scope.full(t): "ring 2", scope.free(t): "ring 2"}
    return [kinds.get(n, "scalar") for n in names]
