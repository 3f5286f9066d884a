"""The text of a band's kernel: what every block does first, and the parts that its warps run."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterable

from napkin.ir.key_sets import spec_of
from napkin.lower import syntax as sx
from napkin.lower.printer import called, comment
from napkin.lower.syntax import Expr
from napkin.lower.trim import trimmed
from napkin.lower.warpgroups.band import Band
from napkin.lower.warpgroups.gluon import free, function, helper, in_gluon, lent
from napkin.lower.warpgroups.rings import Rings
from napkin.lower.warpgroups.room import LOADING, registers
from napkin.lower.write import Written
from napkin.schedule import WARPS


class Whole(Rings):
    """Writes a kernel of warpgroups.

    Attributes:
        bodies: the statements of its parts.
        zeros: names of constants that every part is given.
    """

    def __init__(self, band: Band) -> None:
        super().__init__(band)
        self.bodies: list[list[ast.stmt]] = []
        self.zeros: set[str] = set()

    def function(self) -> Written:
        """The kernel."""
        band, scope, emitter = self.band, self.scope, self.emitter
        emitter.count(self.program.roots)
        name = self.kernel.name
        out: list[ast.stmt] = [
            self.index_type(),
            sx.assign(scope.stages, sx.const(band.stages), "gl.constexpr"),
            *self.steps(),
            *self.placed(),
            *self.rings(),
        ]
        loads, rows = self.loads(), self.folds()
        fixed = {a.name for a in self.arguments() if a.constexpr} | {scope.stages}
        own = {scope.warpgroup}
        texts: list[str] = []
        given: dict[str, list[str]] = {}
        for part, body in (("loads", loads), ("rows", rows)):
            body = trimmed(in_gluon(body))
            used = free(body)
            self.bodies.append(body)
            given[part] = sorted(used - own, key=lambda n: (n in fixed, n))
            names = [*given[part], *sorted(own & used)]
            typed = [(n, "gl.constexpr" if n in fixed | own else "") for n in names]
            texts.append(function(f"_{name}_{part}", typed, body))
        self.zeros = {
            ast.unparse(s.targets[0])
            for s in out
            if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant)
        }
        made = [comment("its warps"), self._specialised(name, given)]
        body = trimmed(in_gluon([*out, *made]))
        arguments = self.passed(body)
        typed = [(a.name, "gl.constexpr" if a.constexpr else "") for a in arguments]
        texts.append(function(name, typed, body))
        entry = self.entry(arguments)
        functions = called(emitter.helpers | lent(self.bodies))
        texts = [*map(helper, functions), *texts]
        return Written(name, "\n\n".join(texts), arguments, self.kernel.group, entry)

    @abstractmethod
    def rings(self) -> list[ast.stmt]:
        """Room for boxes, and their barriers."""

    @abstractmethod
    def loads(self) -> list[ast.stmt]:
        """What the warp does that asks for chunks."""

    @abstractmethod
    def folds(self) -> list[ast.stmt]:
        """What one warpgroup does."""

    def placed(self) -> list[ast.stmt]:
        """Where the band stands."""
        out = [*self.positions(), *self.bases()]
        if self.visiting:
            keys = spec_of(self.visiting.seen.keys).text
            out.append(comment(f"the keys that this band visits: {keys}"))
            out += self.visiting.prologue()
        return out

    def bases(self) -> list[ast.stmt]:
        """Pointers of tensors without a descriptor."""
        out = [s for s in super().bases() if not isinstance(s, ast.If)]
        return out if len(out) > 1 else []

    def _specialised(self, name: str, given: dict[str, list[str]]) -> ast.stmt:
        band = self.band
        rows = [sx.name(n) for n in given["rows"]]
        parts = [_pairs(f"_{name}_rows", [*rows, sx.const(w)]) for w in range(band.groups)]
        parts.append(_pairs(f"_{name}_loads", [sx.name(n) for n in given["loads"]]))
        warps = [WARPS] * (band.groups - 1) + [1]
        own = [registers(band.groups)] * (band.groups - 1) + [LOADING]
        lists = [sx.tuple_of(map(sx.const, x)) for x in (warps, own)]
        return ast.Expr(sx.call("gl.warp_specialize", sx.tuple_of(parts), *lists))


def _pairs(function: str, arguments: Iterable[Expr]) -> Expr:
    return ast.Tuple([sx.name(function), ast.Tuple(list(arguments), ast.Load())], ast.Load())
