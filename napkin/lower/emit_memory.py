"""Statements that read and write tiles: addresses, masks, tensor descriptors."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node, number
from napkin.ir.sliding import windows, within
from napkin.ir.slots import slots_of
from napkin.ir.slotted import guard, place_of
from napkin.ir.storage import own_type, packed_axis
from napkin.ir.taking import clamped, own_axes, read_axes
from napkin.lower import syntax as sx
from napkin.lower.emit_block import TILES, Block
from napkin.lower.launch import in_box
from napkin.lower.scope import DESCRIPTORS
from napkin.lower.syntax import Expr


class Memory(Block):
    """A block that reads inputs and writes outputs."""

    def load(self, leaf: Node) -> Expr:
        """A tile of a tensor, 0 where it reaches past an axis."""
        dims = self.program.shape(leaf)
        own = self.strides_of(leaf)
        for s, at in windows(leaf):
            if any(s.beyond) and at not in self.have:
                target = self.scope.place(leaf, tensor_of(leaf), s.axis)
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
        own = in_box(self.program.boxes[leaf], self.program.tiles)
        at = [self._corner(a) for a in own]
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
                if placed and clamped(placed, axis):
                    at = self._clamped(at, placed, tensor, stride)
            else:
                paired = placed is not None and axis == packed_axis(placed)
                at = sx.name(self.scope.pair(axis) if paired else self.scope.position(axis))
                if self.program.tiles.get(axis, 1) > 1:
                    at = self.spread(at, self.program.shape_of((axis,)), dims)
            parts.append(sx.binary(at, "*", sx.name(self.scope.stride(tensor, stride))))
        return sx.chain("+", parts)

    def _clamped(self, at: Expr, placed: Node, tensor: str, axis: str) -> Expr:
        """Positions of a reading clamped into an axis of its tensor, of the type of addresses."""
        last = sx.binary(sx.name(self.scope.size(axis)), "-", sx.const(1))
        inside = sx.call("tl.minimum", sx.call("tl.maximum", at, sx.const(0)), last)
        target = self.scope.place(placed, tensor, axis)
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
            self.spread(
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
            self.spread(self.value(test), self.program.shape(test), dims)
            for s, at in windows(leaf)
            for test in within(s, at)
        ]

    def fill(self, tensor: str, axes: Sequence[str], n: Node) -> None:
        """Write what the slots of an output without a key hold."""
        s, dims = slots_of(n), self.program.shape_of(axes)
        lacking = [(a, c) for a, c in zip(s.slots, n.args, strict=True) if not c.constant]
        past = [
            ast.Compare(
                self.spread(sx.name(self.scope.position(a)), self.program.shape_of((a,)), dims),
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
        value = sx.call("tl.full", self._extents(dims), sx.const(s.fill), sx.name(TILES[n.kind]))
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
                self.spread(self.value(n), self.program.shape(n), dims),
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
        axes = in_box(self.program.stores[tensor], self.program.tiles)
        into = self.scope.tensor(tensor)
        value = sx.method(value, "to", sx.name(f"{into}.dtype"))
        if len(self.program.shape_of(axes)) != len(axes):
            value = sx.call("tl.reshape", value, sx.tuple_of(self.block(a) for a in axes))
        at = sx.tuple_of(self._corner(a) for a in axes)
        box = ast.Expr(sx.method(sx.name(into), "store", at, value))
        return ast.If(sx.name(DESCRIPTORS), [box], [plain])
