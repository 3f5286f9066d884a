"""Statements that reduce: matrix products, and reductions of a tile along its dimensions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.derive.terms import (
    identity,
    is_operand,
    is_read,
    multiplies,
    narrow_type,
)
from napkin.diagram.node import REDUCTIONS, Node, factors, over
from napkin.diagram.operators import FUNCTIONS
from napkin.lower import syntax as sx
from napkin.lower.arithmetic import as_kind, stabilises
from napkin.lower.emit_block import TILES
from napkin.lower.emit_memory import Memory
from napkin.lower.operands import EXACT_SUM, MIN_DOT, least_depth, multiplied_as, splits
from napkin.lower.program import Join
from napkin.lower.syntax import Expr


class Reductions(Memory):
    """A block that reduces tiles."""

    def _reduction(self, n: Node) -> Expr:
        body = n.args[0]
        dims = list(self.program.shape(body))
        value = as_kind(n.kind, body, self.value(body))
        value = self._reduce_dims(_combined(n), value, dims, over(n))
        if stabilises(n) and n not in self.begun:  # held whole: no state has begun for it
            value = sx.call(f"tl.{REDUCTIONS[n.op].combine}", value, sx.const(identity(n)))
        return value

    def joined(self, join: Join, lane: int) -> Expr:
        """What lanes hold of a state, reduced along their dimension."""
        value = self.value(join.of)
        if not join.op:
            return value
        op = _combined(join.like) if join.like is not None else join.op
        dims = list(self.program.shape(join.of))
        return self._reduce_dims(op, value, dims, self.program.dims[lane])

    def _reduce_dims(self, op: str, value: Expr, dims: list[int], axes: Sequence[str]) -> Expr:
        gone = [d for d in dims if self.program.dims[d][0] in axes]
        for d in reversed(gone):
            at = sx.const(dims.index(d))
            dims.remove(d)
            if op in FUNCTIONS:
                self.helpers.add(op)
                value = sx.call("tl.reduce", value, at, sx.name(op))
            else:
                value = sx.call(f"tl.{op}", value, axis=at)
        return value

    def _fused_add(self, n: Node) -> Expr | None:
        """`accumulator + product` as one product that starts from the accumulator."""
        for a, b in (n.args, n.args[::-1]):
            if b.op == "sum" and b not in self.have and self.uses[b] <= 1:
                split = self._split(b)
                # A factor beside the operands scales the product, and not what it is added to.
                whole = split is not None and len([*split[0], *split[1]]) == len(factors(b.args[0]))
                shapes = {self.program.shape(x) for x in (a, b, n)}
                if whole and len(shapes) == 1:
                    return self._contraction(b, a)
        return None

    def _contraction(self, n: Node, start: Node | None) -> Expr:
        gone = [d for d in self._all_dims(n) if self.program.dims[d][0] in over(n)]
        parts = list(factors(n.args[0]))
        outside = [p for p in parts if not set(self.program.shape(p)) & set(gone)]
        split = self._split(n) if gone else None
        if split is None:
            inner = [p for p in parts if p not in outside] if gone else parts
            if not gone:  # every reduced axis has tile size 1
                return self._product(parts, self.program.shape(n))
            dims = sorted({d for p in inner for d in self.program.shape(p)})
            total = self._reduce_dims("sum", self._product(inner, dims), list(dims), over(n))
            dims = [d for d in dims if d not in gone]
            return self._times(total, dims, outside, self.program.shape(n))
        left, right = split
        total, dims = self._dot(left, right, gone, start, n)
        return self._times(total, dims, outside, self.program.shape(n))

    def _times(
        self, total: Expr, have: Sequence[int], more: Sequence[Node], dims: Sequence[int]
    ) -> Expr:
        total = self.spread(total, have, dims)
        return sx.chain("*", [total, *(self.fit(p, dims) for p in more)])

    def _all_dims(self, n: Node) -> list[int]:
        return sorted({d for p in factors(n.args[0]) for d in self.program.shape(p)})

    def _product(self, parts: Sequence[Node], dims: Sequence[int]) -> Expr:
        """`parts` multiplied, over tile dimensions `dims`.

        Triton 3.6 takes `tl.sum(x[:, :, None] * y[None, :, :])` for a TF32 `tl.dot(x, y)`,
        whichever dimension is summed; `y[None, :, :] * x[:, :, None]` it leaves alone. So with
        three dimensions or more, factors that lack the first one come first.
        """
        if len(dims) > 2:
            parts = sorted(parts, key=lambda p: dims[0] in self.program.shape(p))
        values = [self.fit(p, dims) for p in parts]
        loose = [i for i, p in enumerate(parts) if not p.constant]
        if loose and all(parts[i].kind == "bool" for i in loose):
            values[loose[0]] = as_kind("int", parts[loose[0]], values[loose[0]])
        return sx.chain("*", values)

    def _split(self, n: Node) -> tuple[list[Node], list[Node]] | None:
        """The factors of a contraction as the two operands of a matrix product, if it is one."""
        gone = {d for d in self._all_dims(n) if self.program.dims[d][0] in over(n)}
        parts = [p for p in factors(n.args[0]) if set(self.program.shape(p)) & gone]
        if not multiplies(n, parts) or len(parts) < 2 or not gone:
            return None
        if self.program.span(gone) < least_depth(parts):
            return None
        best: tuple[int, list[Node], list[Node]] | None = None
        for chosen in splits([self.program.shape(p) for p in parts], gone):
            left = [p for p, c in zip(parts, chosen, strict=True) if not c]
            right = [p for p, c in zip(parts, chosen, strict=True) if c]
            spans = [{d for p in side for d in self.program.shape(p)} for side in (left, right)]
            rows, columns = spans[0] - gone, spans[1] - gone
            if not right or rows & columns or not rows or not columns:
                continue
            if not (gone <= spans[0] and gone <= spans[1]):
                continue
            if any(self.program.span(group) < MIN_DOT for group in (rows, columns, gone)):
                continue
            work = sum(self.program.span(s) for s in spans)
            if best is None or work < best[0]:
                best = (work, left, right)
        if best is None:
            return None
        left, right = best[1:]
        first = min(d for p in left for d in self.program.shape(p) if d not in gone)
        other = min(d for p in right for d in self.program.shape(p) if d not in gone)
        return (left, right) if first < other else (right, left)

    def _dot(
        self, left: list[Node], right: list[Node], gone: list[int], start: Node | None, n: Node
    ) -> tuple[Expr, list[int]]:
        spans = [sorted({d for p in side for d in self.program.shape(p)}) for side in (left, right)]
        rows = [d for d in spans[0] if d not in gone]
        columns = [d for d in spans[1] if d not in gone]
        a = self._operand(left, spans[0], (*left, *right))
        b = self._operand(right, spans[1], (*left, *right))
        a = self._matrix(a, spans[0], rows, gone)
        b = self._matrix(b, spans[1], gone, columns)
        out = [*rows, *columns]
        args = [a, b]
        flat = len(rows) == 1 and len(columns) == 1
        if start is not None:
            begin = self.value(start)
            want = list(self.program.shape(n))
            if want != out:
                begin = self._permuted(begin, want, out)
            args.append(begin if flat else self._matrix(begin, out, rows, columns))
        kinds: dict[str, Expr] = {"input_precision": ast.Constant("ieee")}
        if n.kind == "int":  # Triton 3.6 does not see it from the accumulator
            kinds["out_dtype"] = sx.name(TILES[n.kind])
        if narrow_type((*left, *right)) == "fp8":
            kinds["max_num_imprecise_acc"] = self._exact_sum(gone)
        done = sx.call("tl.dot", *args, **kinds)
        if not flat:
            done = sx.call("tl.reshape", done, self._extents(out))
        want = sorted(out)
        return (self._permuted(done, out, want) if want != out else done), want

    def _exact_sum(self, gone: Sequence[int]) -> Expr:
        """`EXACT_SUM`, or the depth of the product where that is less."""
        depth = sx.chain("*", [self.scope.extent(d) for d in gone])
        most = sx.const(EXACT_SUM)
        return sx.choose(sx.less(depth, most), depth, most)

    def _operand(self, parts: list[Node], dims: list[int], every: Sequence[Node]) -> Expr:
        """One operand of the product of `every` factor."""
        if len(parts) == 1 and is_read(parts[0]):
            self.value(parts[0])
            value = self.have[parts[0]]
            if is_operand(parts[0], every) or narrow_type(every):
                return value
        else:
            value = self._product(parts, dims)
        boxes, kernel = self.program.boxes, self.program.kernel
        like = multiplied_as(kernel, every, {*boxes, *self.program.stores})
        if like:
            dtype = f"{self.scope.tensor(like)}.dtype.element_ty"
        elif boxed := [p for p in (*every, *self.have) if p in boxes]:
            self.value(boxed[0])  # a descriptor has no element type; its tile has
            dtype = f"{ast.unparse(self.have[boxed[0]])}.dtype"
        else:
            dtype = "tl.float32"
        return sx.method(value, "to", sx.name(dtype))

    def _matrix(
        self, value: Expr, dims: Sequence[int], first: Sequence[int], second: Sequence[int]
    ) -> Expr:
        order = [*first, *second]
        if list(dims) != order:
            value = self._permuted(value, list(dims), order)
        if len(order) == 2:
            return value
        shape = [sx.chain("*", [self.scope.extent(d) for d in group]) for group in (first, second)]
        return sx.call("tl.reshape", value, sx.tuple_of(shape))


def _combined(n: Node) -> str:
    """What combines the values of a reduction: a function of the kernel file, or of Triton, whose
    `tl.max` and `tl.min` lose a NaN."""
    record = REDUCTIONS[n.op]
    exact = record.function and n.kind == "real" and not stabilises(n)
    return record.function if exact or not record.native else record.native
