"""Triton statements for the terms of a loop program."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from napkin.derive.kernel import tensor_of
from napkin.derive.terms import (
    COMBINE,
    identity,
    is_operand,
    is_read,
    multiplies,
    narrow_type,
)
from napkin.diagram.expand import own_axes
from napkin.diagram.keys.slots import guard, place_of, slots_of
from napkin.diagram.keys.terms import member
from napkin.diagram.node import REDUCTIONS, Kind, Node, factors, in_kind, number, over
from napkin.diagram.operators import POINTWISE
from napkin.diagram.storage import own_type, packed_axis, widens
from napkin.diagram.taking import clamped, read_axes, windows
from napkin.diagram.windows import within
from napkin.errors import Refusal
from napkin.lower import syntax as sx
from napkin.lower.arithmetic import as_kind, pointwise, stabilises
from napkin.lower.operands import multiplied_as
from napkin.lower.program import Program, counted
from napkin.lower.scope import DESCRIPTORS, Scope
from napkin.lower.syntax import Expr
from napkin.lower.words import APART, LEFT_OUT, OUTSIDE, PLACE, outside, place

MIN_DOT = 16
"""Smallest dimension of a tile that Triton's `tl.dot` takes on every target."""

NARROW_DEPTH = 32
"""Smallest depth of a product of 8-bit operands: that of one instruction (PTX ISA, mma)."""

EXACT_SUM = 128
"""Products of fp8 that Hopper's tensor cores add up before the sum goes on in float32: they keep
some 14 bits of it (arXiv 2412.19437, section 3.3.2, which takes 128 too)."""

TRITON_DTYPES = {
    "fp64": "tl.float64",
    "fp32": "tl.float32",
    "fp16": "tl.float16",
    "bf16": "tl.bfloat16",
    "fp8": "tl.float8e4nv",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "bool": "tl.int1",
}


_TILES: dict[Kind, str] = {"real": "tl.float32", "int": "tl.int32", "bool": "tl.int1"}

_HELPERS = {"prod": "multiply", "max": "largest", "min": "smallest"}
"""Reductions that a function of the kernel file combines: `tl.max` and `tl.min` lose a NaN."""


class Emitter:
    """Writes statements for terms, each once per scope, in the order they are needed."""

    def __init__(self, program: Program, scope: Scope) -> None:
        self.program, self.scope = program, scope
        self.statements: list[ast.stmt] = []
        self.have: dict[Node, Expr] = {}
        self.raw: set[Node] = set()
        self.uses: Counter[Node] = Counter()
        self.helpers: set[str] = set()
        self.inside: set[str] = set()
        steps = [step for loop in program.loops for step in loop.steps.values()]
        self.begun = {a for n in steps if n.op in {"maximum", "minimum"} for a in n.args}

    def count(self, roots: Iterable[Node]) -> None:
        """Note how often each term is used, to write single-use arithmetic in line."""
        seen: set[Node] = set()
        stack = list(roots)
        self.uses.update(stack)
        while stack:
            n = stack.pop()
            if n in seen or n.constant:
                continue
            seen.add(n)
            below = factors(n.args[0]) if n.op == "sum" else n.args
            self.uses.update(below)
            stack.extend(below)

    def recount(self, roots: Iterable[Node]) -> None:
        """Note the uses in `roots` alone: of one loop among several that stand for one pass."""
        self.uses = Counter()
        self.count(roots)

    def child(self) -> Emitter:
        """An emitter for a block inside this one: it knows what is computed here."""
        inner = Emitter(self.program, self.scope)
        inner.have, inner.raw, inner.uses = dict(self.have), set(self.raw), self.uses
        inner.helpers, inner.inside = self.helpers, set(self.inside)
        return inner

    # --- values -----------------------------------------------------------------------------

    def value(self, n: Node) -> Expr:
        """`n` as an expression, in float32 if it is real, in int32 if it is whole."""
        if n in self.have:
            found = self.have[n]
            if n in self.raw and n.kind == "real" and own_type(n) != "fp32":
                return sx.method(found, "to", sx.name("tl.float32"))
            if n in self.raw and n.kind == "int" and own_type(n):
                return sx.method(found, "to", sx.name("tl.int32"))
            return found
        if n.op == "number":
            return sx.const(n.params[0])
        if n.op == "size":
            return sx.name(self.scope.size(str(n.params[0])))
        if n.op in {"index", "corner"}:
            return self._define(n)
        if n.constant and counted(n):
            return self._pointwise(n, ())
        if n.constant:
            return sx.name(self.scope.constant(n))
        made = self._define(n)
        if isinstance(made, ast.Name) and n in self.program.boxes:
            self.have[n] = made
            return self.value(n)
        if self._in_line(n):
            return made
        target = self.scope.value(n)
        self.statements.append(sx.assign(target, made))
        self.have[n] = sx.name(target)
        return self.value(n)

    def define(self, n: Node) -> None:
        """Compute `n` here and give it a name, whatever its uses."""
        if n not in self.have and not n.constant:
            made = self._define(n)
            if isinstance(made, ast.Name) and n in self.program.boxes:
                self.have[n] = made
            if n not in self.have:
                target = self.scope.value(n)
                self.statements.append(sx.assign(target, made))
                self.have[n] = sx.name(target)

    def _in_line(self, n: Node) -> bool:
        named = n in self.program.kernel.names or n.op in REDUCTIONS
        return n.op in POINTWISE and self.uses[n] <= 1 and not named

    def fit(self, n: Node, dims: Sequence[int]) -> Expr:
        """`n` indexed to broadcast over `dims`."""
        return sx.expanded(self.value(n), self.program.shape(n), dims)

    def _define(self, n: Node) -> Expr:
        dims = self.program.shape(n)
        if is_read(n):
            self.raw.add(n)
            return self._boxed_load(n) if n in self.program.boxes else self.load(n)
        if n.op == "index":
            return sx.name(self.scope.position(n.axes[0]))
        if n.op == "keys":
            return self.value(member(n))
        if n.op == "corner":
            return sx.name(self.scope.corner(*map(str, n.params)))
        if n.op in {OUTSIDE, PLACE, APART}:
            return self._word(n, dims)
        if n.op == "ones":
            return sx.call("tl.full", self._extents(dims), sx.const(1), sx.name("tl.int32"))
        if n.op == "mask":
            return self._mask(n, dims)
        if n.op == "sum":
            return self._contraction(n, None)
        if n.op in REDUCTIONS:
            return self._reduction(n)
        if n.op == "cumsum":
            value = as_kind(n.kind, n.args[0], self.value(n.args[0]))
            return sx.call("tl.cumsum", value, axis=sx.const(self._place(n, over(n)[0])))
        if n.op == "sort":
            return self._sort(n)
        if n.op == "add":
            fused = self._fused_add(n)
            if fused is not None:
                return fused
        if n.op == "cast":
            return self._cast(n)
        return self._pointwise(n, dims)

    def _pointwise(self, n: Node, dims: Sequence[int]) -> Expr:
        if n.op == "mul":
            return self._product(n.args, dims)
        made, helper = pointwise(n, [self.fit(a, dims) for a in n.args])
        self.helpers |= {helper} - {""}
        return made

    def _cast(self, n: Node) -> Expr:
        """Rounded as asked; what follows is computed in float32 again."""
        value, target = self.value(n.args[0]), str(n.params[0])
        if widens(n):
            return value
        if target in {"fp16", "bf16", "fp8"}:
            value = sx.method(value, "to", sx.name(TRITON_DTYPES[target]))
        return sx.method(
            value, "to", sx.name(TRITON_DTYPES["fp32" if n.kind == "real" else target])
        )

    def _extents(self, dims: Sequence[int]) -> Expr:
        return sx.tuple_of(self.scope.extent(d) for d in dims)

    def _word(self, n: Node, dims: Sequence[int]) -> Expr:
        if n.op == APART:
            query, key = (self.fit(a, dims) for a in n.args)
            return ast.Compare(sx.binary(query, "&", key), [ast.Eq()], [sx.const(0)])
        axes = [str(a) for a in n.params]
        blocks = [self.block(a) for a in axes]
        starts = [sx.name(self.scope.start(a)) for a in axes]
        if n.op == OUTSIDE:
            self.helpers.add(LEFT_OUT)
            return outside([self.fit(a, dims) for a in n.args], blocks, starts)
        return place([sx.name(self.scope.position(a)) for a in axes], blocks, starts)

    def block(self, axis: str) -> Expr:
        """The values of a tile along an axis."""
        single = self.program.tiles[axis] == 1
        return sx.const(1) if single else sx.name(self.scope.block(axis))

    def _mask(self, n: Node, dims: Sequence[int]) -> Expr:
        axis = str(n.params[0])
        inside = sx.expanded(sx.name(self.scope.inside(axis)), self.program.shape_of((axis,)), dims)
        if n.args[0].op == "ones" and self.program.shape(n.args[0]) == tuple(dims) == (
            self.program.shape_of((axis,))
        ):
            return sx.method(inside, "to", sx.name("tl.int32"))
        fill = sx.const(in_kind(float(str(n.params[1])), n.kind))
        return sx.call("tl.where", inside, self.fit(n.args[0], dims), fill)

    def _place(self, n: Node, axis: str) -> int:
        dims = self.program.shape(n)
        return next(i for i, d in enumerate(dims) if axis in self.program.dims[d])

    def _sort(self, n: Node) -> Expr:
        if self._place(n, over(n)[0]) != len(self.program.shape(n)) - 1:
            raise Refusal(
                f"lower sort along {over(n)[0]}",
                "sort",
                "Triton sorts only the last dimension of a tile",
                f"put {over(n)[0]} last in the signature",
            )
        return sx.call("tl.sort", self.value(n.args[0]))

    # --- reductions -------------------------------------------------------------------------

    def _reduction(self, n: Node) -> Expr:
        body = n.args[0]
        dims = list(self.program.shape(body))
        op = n.op
        if op in _HELPERS and (op == "prod" or (n.kind == "real" and not stabilises(n))):
            op = _HELPERS[op]
        value = self._reduce_dims(op, as_kind(n.kind, body, self.value(body)), dims, over(n))
        if stabilises(n) and n not in self.begun:  # held whole: no state has begun for it
            value = sx.call(f"tl.{COMBINE[n.op]}", value, sx.const(identity(n)))
        return value

    def _reduce_dims(self, op: str, value: Expr, dims: list[int], axes: Sequence[str]) -> Expr:
        gone = [d for d in dims if self.program.dims[d][0] in axes]
        for d in reversed(gone):
            at = sx.const(dims.index(d))
            dims.remove(d)
            if op in _HELPERS.values():
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
                if whole and self.program.shape(a) == self.program.shape(n):
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
        total = sx.expanded(total, have, dims)
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
        if all(p.kind == "bool" for p in parts):
            values[0] = as_kind("int", parts[0], values[0])
        return sx.chain("*", values)

    def _split(self, n: Node) -> tuple[list[Node], list[Node]] | None:
        """The factors of a contraction as the two operands of a matrix product, if it is one."""
        gone = {d for d in self._all_dims(n) if self.program.dims[d][0] in over(n)}
        parts = [p for p in factors(n.args[0]) if set(self.program.shape(p)) & gone]
        if not multiplies(n, parts) or len(parts) < 2 or not gone:
            return None
        if narrow_type(parts) and self.program.span(gone) < NARROW_DEPTH:
            return None
        best: tuple[int, list[Node], list[Node]] | None = None
        for chosen in itertools.product((0, 1), repeat=len(parts) - 1):
            sides = (
                [parts[0], *(p for p, c in zip(parts[1:], chosen, strict=True) if not c)],
                [p for p, c in zip(parts[1:], chosen, strict=True) if c],
            )
            spans = [{d for p in side for d in self.program.shape(p)} for side in sides]
            rows, columns = spans[0] - gone, spans[1] - gone
            if not sides[1] or rows & columns or not rows or not columns:
                continue
            if not (gone <= spans[0] and gone <= spans[1]):
                continue
            if any(self.program.span(group) < MIN_DOT for group in (rows, columns, gone)):
                continue
            work = sum(self.program.span(s) for s in spans)
            if best is None or work < best[0]:
                best = (work, *sides)
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
            kinds["out_dtype"] = sx.name(_TILES[n.kind])
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

    def _permuted(self, value: Expr, have: list[int], want: list[int]) -> Expr:
        if len(have) == 2:
            return sx.call("tl.trans", value)
        return sx.call("tl.permute", value, sx.tuple_of(sx.const(have.index(d)) for d in want))

    # --- memory -----------------------------------------------------------------------------

    def load(self, leaf: Node) -> Expr:
        """A tile of a tensor, 0 where it reaches past an axis."""
        dims = self.program.shape(leaf)
        own = self.strides_of(leaf)
        for s, at in windows(leaf):
            if any(s.beyond) and at not in self.have:
                target = self.scope.place(tensor_of(leaf), s.axis)
                self.statements.append(sx.assign(target, self._define(at)))
                self.have[at] = sx.name(target)
        where = self.address(tensor_of(leaf), leaf, read_axes(leaf), own, dims, leaf)
        mask = self.within(leaf.axes, dims, leaf)
        if mask is None:
            return self._whole(leaf, sx.call("tl.load", where), dims)
        other = sx.const(0.0 if leaf.kind == "real" else 0)
        made = sx.call("tl.load", where, mask=mask, other=other)
        # Triton's interpreter takes a scalar 0 for no `other`.
        made = made if dims else sx.call("tl.where", mask, made, other)
        return self._whole(leaf, made, dims)

    def _whole(self, leaf: Node, found: Expr, dims: Sequence[int]) -> Expr:
        """The values of a tile as it was loaded: of one of bytes that hold two each, these."""
        packed = packed_axis(leaf)
        if not packed:
            return found
        here = next(d for d in dims if packed in self.program.dims[d])
        have, last = list(dims), [*(d for d in dims if d != here), here]
        if have != last:
            found = self._permuted(found, have, last)
        helper = "signed_halves" if own_type(leaf) == "int4" else "halves"
        self.helpers.add(helper)
        found = sx.call("tl.reshape", sx.call(helper, found), self._extents(last))
        return found if have == last else self._permuted(found, last, have)

    def _boxed_load(self, leaf: Node) -> Expr:
        """A tile through the tensor's descriptor where the call gives one, else by addresses."""
        target = self.scope.value(leaf)
        at = [self._corner(a) for a in self.program.boxes[leaf]]
        tensor = sx.name(self.scope.tensor(tensor_of(leaf)))
        made = sx.method(tensor, "load", sx.tuple_of(at))
        if len(self.program.shape(leaf)) != len(at):
            made = sx.call("tl.reshape", made, self._extents(self.program.shape(leaf)))
        self.statements.append(
            ast.If(
                sx.name(DESCRIPTORS),
                [sx.assign(target, made)],
                [sx.assign(target, self.load(leaf))],
            )
        )
        return sx.name(target)

    def _corner(self, axis: str) -> Expr:
        """Where a tile begins along an axis."""
        kernel, scope = self.program.kernel, self.scope
        if self.program.tiles[axis] == 1:
            return sx.name(scope.position(axis))
        if axis in kernel.stream.axes:
            return sx.name(scope.start(axis))
        if axis in kernel.group:
            return sx.binary(sx.name(scope.group_id(axis)), "*", sx.name(scope.block(axis)))
        return sx.const(0)

    @staticmethod
    def strides_of(leaf: Node) -> Sequence[str]:
        return own_axes(leaf)

    def address(
        self,
        tensor: str,
        key: Node | str,
        axes: Sequence[str],
        own: Sequence[str],
        dims: Sequence[int],
        placed: Node | None = None,
    ) -> Expr:
        """Pointers to a tile; `key` is the reading or the output's name, `own` the tensor's names
        for the axes, `placed` the reading or the scatter that says where along key axes."""
        group = self.program.kernel.group
        fixed = [a for a in axes if a in group and self.program.tiles[a] == 1]
        fixed = [a for a in fixed if placed is None or place_of(placed, a) is None]
        start = self.scope.base(key, tensor) if fixed else self.scope.tensor(tensor)
        parts: list[Expr] = [sx.name(start)]
        for axis, stride in zip(axes, own, strict=True):
            if axis in fixed:
                continue
            slot = place_of(placed, axis) if placed else None
            if slot is not None:
                at = self.fit(slot, dims)
                at = self._clamped(at, tensor, stride) if placed and clamped(placed, axis) else at
            else:
                paired = placed is not None and axis == packed_axis(placed)
                at = sx.name(self.scope.pair(axis) if paired else self.scope.position(axis))
                if self.program.tiles[axis] > 1:
                    at = sx.expanded(at, self.program.shape_of((axis,)), dims)
            parts.append(sx.binary(at, "*", sx.name(self.scope.stride(tensor, stride))))
        return sx.chain("+", parts)

    def _clamped(self, at: Expr, tensor: str, axis: str) -> Expr:
        """Positions clamped into an axis of a tensor, of the type of addresses."""
        last = sx.binary(sx.name(self.scope.size(axis)), "-", sx.const(1))
        inside = sx.call("tl.minimum", sx.call("tl.maximum", at, sx.const(0)), last)
        target = self.scope.place(tensor, axis)
        self.statements.append(sx.assign(target, sx.method(inside, "to", sx.name("INDEX"))))
        return sx.name(target)

    def within(
        self, axes: Sequence[str], dims: Sequence[int], placed: Node | None = None
    ) -> Expr | None:
        """The lanes of a tile that lie inside every axis, and inside the key set that says where
        `placed` is read or stored; None where all do."""
        tiled = [a for a in axes if self.program.padded(a) and a not in self.inside]
        paired, scope = packed_axis(placed) if placed else "", self.scope
        tests = [
            sx.expanded(
                sx.name(scope.pair_inside(a) if a == paired else scope.inside(a)),
                self.program.shape_of((a,)),
                dims,
            )
            for a in tiled
            if placed is None or place_of(placed, a) is None
        ]
        tests += self._padding(placed, dims) if placed else []
        seen = guard(placed) if placed else None
        if seen is not None and seen is not number(True):
            tests.append(self.fit(seen, dims))
        return sx.chain("&", tests) if tests else None

    def _padding(self, leaf: Node, dims: Sequence[int]) -> list[Expr]:
        """The tests that padded windows read inside the axis."""
        return [
            sx.expanded(self.value(test), self.program.shape(test), dims)
            for s, at in windows(leaf)
            for test in within(s, at)
        ]

    def fill(self, tensor: str, axes: Sequence[str], n: Node) -> None:
        """Write what the slots of an output without a key hold."""
        s, dims = slots_of(n), self.program.shape_of(axes)
        lacking = [(a, c) for a, c in zip(s.slots, n.args, strict=True) if not c.constant]
        past = [
            ast.Compare(
                sx.expanded(sx.name(self.scope.position(a)), self.program.shape_of((a,)), dims),
                [ast.GtE()],
                [self.fit(count, dims)],
            )
            for a, count in lacking
        ]
        mask: Expr = sx.chain("|", past)
        inside = self.within(axes, dims)
        if inside is not None:
            mask = sx.chain("&", [inside, mask])
        where = self.address(tensor, tensor, axes, axes, dims)
        value = sx.call("tl.full", self._extents(dims), sx.const(s.fill), sx.name(_TILES[n.kind]))
        store = sx.call("tl.store", where, value if dims else sx.const(s.fill), mask=mask)
        self.statements.append(ast.Expr(store))

    def store(self, tensor: str, axes: Sequence[str], n: Node) -> None:
        """Write a tile of an output."""
        own, placed = axes, None
        if n.op == "scatter":
            s, placed = slots_of(n), n
            axes = [s.keys[s.slots.index(a)] if a in s.slots else a for a in own]
            n = n.args[0]
        dims = self.program.shape_of(axes)
        value = self.fit(n, dims)
        if self.program.shape(n) != dims:
            value = sx.call(
                "tl.broadcast_to",
                sx.expanded(self.value(n), self.program.shape(n), dims),
                self._extents(dims),
            )
        boxed = tensor in self.program.stores
        if boxed:
            target = self.scope.done(tensor)
            self.statements.append(sx.assign(target, value))
            value = sx.name(target)
        where = self.address(tensor, tensor, axes, own, dims, placed)
        mask = self.within(axes, dims, placed)
        kinds = {} if mask is None else {"mask": mask}
        plain = ast.Expr(sx.call("tl.store", where, value, **kinds))
        self.statements.append(self._boxed_store(tensor, value, plain) if boxed else plain)

    def _boxed_store(self, tensor: str, value: Expr, plain: ast.stmt) -> ast.stmt:
        """A tile through the tensor's descriptor where the call gives one, else by addresses."""
        axes, into = self.program.stores[tensor], self.scope.tensor(tensor)
        value = sx.method(value, "to", sx.name(f"{into}.dtype"))
        if len(self.program.shape_of(axes)) != len(axes):
            value = sx.call("tl.reshape", value, sx.tuple_of(self.block(a) for a in axes))
        at = sx.tuple_of(self._corner(a) for a in axes)
        box = ast.Expr(sx.method(sx.name(into), "store", at, value))
        return ast.If(sx.name(DESCRIPTORS), [box], [plain])
