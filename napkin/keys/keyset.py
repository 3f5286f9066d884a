"""Key sets as users hold them: bound to axes or not yet, joined by `&` and `|`, looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from napkin.errors import InputError, check_known
from napkin.ir.infer import pointwise
from napkin.ir.key_sets import MAX_BOXES, Box, Interval, Need, Spec, bounds_of, keys_node, member
from napkin.ir.key_sets import query_axes as axes_of_queries
from napkin.ir.node import Node, node, number, postorder
from napkin.ir.rewrite import rewrite
from napkin.ir.whole_numbers import greater, length, lesser, whole
from napkin.keys.axes import called, check_sizes, unnamed

if TYPE_CHECKING:
    import numpy as np

    from napkin.keys.acsr import ACSR

Layout: TypeAlias = "int | Sequence[int] | Mapping[str, int]"


@dataclass(frozen=True, eq=False, repr=False)
class KeySet:
    """The keys that each query sees: a union of boxes over the key axes.

    Attributes:
        text: the set in words.
        query_axes, key_axes: the axes of queries and keys, in pairs.
        boxes: the boxes, with bounds over the query axes.
        tied: whether queries and keys share one layout, so that their sizes must agree.
        needs: least sizes of the key axes.
        most: the keys of the longest window along each key axis, None where no number bounds them;
            () where none is known.
    """

    text: str
    query_axes: tuple[str, ...]
    key_axes: tuple[str, ...]
    boxes: tuple[Box, ...]
    tied: bool = True
    needs: tuple[Need, ...] = ()
    most: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        if len(self.boxes) > MAX_BOXES:
            raise InputError(
                f"{self.text}: a union of {len(self.boxes)} boxes is too large (at most "
                f"{MAX_BOXES}, each has a loop of its own); join neighbouring intervals into one"
            )

    def __repr__(self) -> str:
        return self.text

    # --- algebra ----------------------------------------------------------------------------

    def __or__(self, other: KeySet) -> KeySet:
        """Keys of either set."""
        a, b = _together(self, other)
        tied = a.tied and b.tied
        return replace(
            a,
            text=f"{a.text} | {b.text}",
            boxes=a.boxes + b.boxes if tied else (*_untied(a), *_untied(b)),
            tied=tied,
            needs=a.needs + b.needs,
            most=(),
        )

    def __and__(self, other: KeySet) -> KeySet:
        """Keys of both sets."""
        a, b = _together(self, other)
        boxes = tuple(
            Box(tuple(_both(i, j, a, b) for i, j in zip(p.intervals, q.intervals, strict=True)))
            for p in a.boxes
            for q in b.boxes
        )
        return replace(
            a,
            text=f"({_operand(a.text)} & {_operand(b.text)})",
            boxes=boxes,
            tied=a.tied and b.tied,
            needs=a.needs + b.needs,
            most=tuple(_fewer(m, n) for m, n in zip(a.slots, b.slots, strict=True)),
        )

    # --- binding ----------------------------------------------------------------------------

    @property
    def named(self) -> bool:
        """Whether the set knows its axes."""
        return not any(unnamed(a) for a in (*self.query_axes, *self.key_axes))

    def over(self, queries: str | Sequence[str], keys: str | Sequence[str]) -> KeySet:
        """The same set on other axes.

        Raises:
            InputError: there are more or fewer axes.
        """
        queries = queries.split() if isinstance(queries, str) else queries
        keys = keys.split() if isinstance(keys, str) else keys
        if (len(queries), len(keys)) != (len(self.query_axes), len(self.key_axes)):
            raise InputError(
                f"{self.text} has {len(self.key_axes)} key axes and {len(self.query_axes)} query "
                f"axes; it was put on keys '{' '.join(keys)}' and queries '{' '.join(queries)}'"
            )
        table = dict(zip((*self.query_axes, *self.key_axes), (*queries, *keys), strict=True))

        def change(old: Node, _: tuple[Node, ...]) -> Node | None:
            if old.op not in {"index", "size"} or old.params[0] not in table:
                return None
            axis = table[str(old.params[0])]
            return node(
                old.op, params=(axis,), axes=(axis,) if old.op == "index" else (), kind="int"
            )

        done = rewrite(bounds_of(self.boxes), change)
        boxes = tuple(
            Box(tuple(replace(i, first=done[i.first], end=done[i.end]) for i in b.intervals))
            for b in self.boxes
        )
        needs = tuple(replace(n, axis=table.get(n.axis, n.axis)) for n in self.needs)
        return replace(
            self, query_axes=tuple(queries), key_axes=tuple(keys), boxes=boxes, needs=needs
        )

    @property
    def node(self) -> Node:
        """The set as a node of a diagram."""
        tied = tuple(zip(self.query_axes, self.key_axes, strict=True)) if self.tied else ()
        spec = Spec(
            self.key_axes,
            tuple(tuple(i.step for i in b.intervals) for b in self.boxes),
            tied,
            self.needs,
            self.text,
        )
        return keys_node(self.boxes, spec)

    @property
    def slots(self) -> tuple[int | None, ...]:
        """The keys of the longest window along each key axis: the slots of its compressed form.

        None where no number bounds them, as of causal attention.
        """
        return self.most or (None,) * len(self.key_axes)

    # --- looking ----------------------------------------------------------------------------

    def mask(self, layout: Layout) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The set as a matrix, queries by keys, both row-major over their layouts.

        `layout` is the size of every axis of queries and keys, or their sizes by axis name.

        Raises:
            InputError: the layout does not fit the set.
        """
        import numpy as np

        self._refuse_inputs()
        sizes = self._sizes(layout)
        grid = self._grid(sizes, {})
        rows = math.prod(sizes[a] for a in self.query_axes)
        columns = math.prod(sizes[a] for a in self.key_axes)
        return np.array(grid.reshape(rows, columns), dtype=bool)

    def keys(self, query: int | Sequence[int], layout: Layout | None = None) -> list[Any]:
        """The keys that one query sees, in order: numbers for one key axis, else tuples.

        Raises:
            InputError: the query lies outside the layout.
        """
        import numpy as np

        self._refuse_inputs()
        given = query if isinstance(query, Sequence) else (query,)
        at = tuple(whole(i, f"{self.text}: query") for i in given)
        if len(at) != len(self.query_axes):
            raise InputError(
                f"{self.text} has {len(self.query_axes)} query axes; {query!r} names {len(at)}"
            )
        if layout is None:
            layout = self._smallest(at)
        sizes = self._sizes(layout)
        for a, i in zip(self.query_axes, at, strict=True):
            if i >= sizes[a]:
                raise InputError(
                    f"{self.text}: query {i} lies outside {called(a)} of size {sizes[a]}"
                )
        box = {a: range(i, i + 1) for a, i in zip(self.query_axes, at, strict=True)}
        seen = self._grid(sizes, box)
        found = np.argwhere(seen.reshape([sizes[a] for a in self.key_axes])).tolist()
        return [k[0] for k in found] if len(self.key_axes) == 1 else [tuple(k) for k in found]

    def picture(self, layout: Layout) -> str:
        """The set as text, a row for each query: `#` where it sees the key."""
        return "\n".join("".join("#" if k else "." for k in row) for row in self.mask(layout))

    def acsr(self, layout: Layout) -> ACSR:
        """The set as one progression of keys for each query, both flattened row-major
        (see `napkin.keys.acsr`).

        Raises:
            InputError: the layout does not fit the set.
            Refusal: the keys of some query are no progression.
        """
        from napkin.keys.acsr import acsr

        self._refuse_inputs()
        return acsr(self.node, self.query_axes, self._sizes(layout))

    def _grid(self, sizes: Mapping[str, int], box: Mapping[str, range]) -> Any:
        """Which keys queries see, along the query axes and then the key axes."""
        from napkin.ir.evaluate import at_positions

        axes = (*self.query_axes, *self.key_axes)
        return at_positions(member(self.node), axes, sizes, box)

    def _smallest(self, at: Sequence[int]) -> Layout:
        if any(n.op == "size" for n in postorder(bounds_of(self.boxes))):
            raise InputError(
                f"{self.text}: the keys of a query depend on the layout; write .keys(query, layout)"
            )
        return {a: i + 1 for a, i in zip(self.query_axes, at, strict=True)} | {
            a: max(at) + 1 for a in self.key_axes
        }

    def _sizes(self, layout: Layout) -> dict[str, int]:
        axes = (*self.query_axes, *self.key_axes)
        if isinstance(layout, Mapping):
            sizes = dict(layout)
            missing = [a for a in axes if a not in sizes]
            if missing:
                said = dict.fromkeys(called(a) if unnamed(a) else a for a in missing)
                raise InputError(f"{self.text}: the layout has no size for {', '.join(said)}")
        else:
            given = tuple(layout) if isinstance(layout, Sequence) else (layout,)
            if len(given) != len(self.key_axes):
                raise InputError(
                    f"{self.text} has {len(self.key_axes)} key axes; the layout {layout!r} has "
                    f"{len(given)}"
                )
            sizes = dict(zip(axes, given * 2, strict=True))
        sizes = {
            a: whole(n, f"{self.text}: {'layout' if unnamed(a) else a}") for a, n in sizes.items()
        }
        check_sizes(self.node, sizes)
        return sizes

    def _refuse_inputs(self) -> None:
        """Refuse to look at a set that more than its layout decides."""
        for n in postorder(self.node.args):
            if n.op in {"input", "scalar"}:
                raise InputError(
                    f"{self.text} depends on the values of {n.params[0]}, which are given when "
                    "the diagram is called"
                )
            if n.op == "index" and n.params[0] not in self.query_axes:
                raise InputError(
                    f"{self.text} depends on positions along {n.params[0]}, which is none of its "
                    f"query axes '{' '.join(self.query_axes)}'"
                )


def _together(a: KeySet, b: KeySet) -> tuple[KeySet, KeySet]:
    """Two sets on the same axes; one that has no names yet takes the other's."""
    if not isinstance(b, KeySet):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"{a.text} is joined with {b!r}, which is no key set")
    if len(a.key_axes) != len(b.key_axes):
        raise InputError(
            f"{a.text} has {len(a.key_axes)} key axes and {b.text} {len(b.key_axes)}; key sets are "
            "joined on the same axes"
        )
    if a.named and not b.named:
        b = b.over(a.query_axes, a.key_axes)
    elif b.named and not a.named:
        a = a.over(b.query_axes, b.key_axes)
    if (a.query_axes, a.key_axes) != (b.query_axes, b.key_axes):
        raise InputError(
            f"{a.text} is over queries '{' '.join(a.query_axes)}' and keys "
            f"'{' '.join(a.key_axes)}', {b.text} over '{' '.join(b.query_axes)}' and "
            f"'{' '.join(b.key_axes)}'; key sets are joined on the same axes"
        )
    return a, b


def _untied(keys: KeySet) -> tuple[Box, ...]:
    """The boxes of a set where a query may lie behind the last key: they end within the axis."""
    sizes = [length(a) for a in keys.key_axes]
    every = ([*map(ending_within, b.intervals, sizes)] for b in keys.boxes)
    return tuple(Box(tuple(intervals)) for intervals in every)


def ending_within(interval: Interval, size: Node) -> Interval:
    """The same keys with an end inside the axis."""
    end = interval.end
    if end.op == "minimum" and size in end.args:
        return interval
    return replace(interval, end=lesser(end, size))


def _fewer(a: int | None, b: int | None) -> int | None:
    """The smaller of two bounds, of which there may be none."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _operand(text: str) -> str:
    return f"({text})" if " | " in text else text


def _both(i: Interval, j: Interval, a: KeySet, b: KeySet) -> Interval:
    if i.step > 1 and j.step > 1:
        raise InputError(
            f"{_operand(a.text)} & {_operand(b.text)}: both step through the keys (by {i.step} and "
            f"{j.step}); at most one of two intersected sets may be dilated. Mask the scores by "
            "the other: nk.where(condition, scores, -inf)"
        )
    if j.step > 1:
        i, j = j, i
    end = lesser(i.end, j.end)
    if i.step == 1:
        return Interval(greater(i.first, j.first), end)
    # The first of the dilated keys that is not before the other interval.
    gap = pointwise("sub", (greater(i.first, j.first), i.first))
    hops = pointwise("floordiv", (pointwise("add", (gap, number(i.step - 1))), number(i.step)))
    first = pointwise("add", (i.first, pointwise("mul", (hops, number(i.step)))))
    return Interval(first, end, i.step)


def _instead(axis: str, over: tuple[str, ...]) -> str:
    """What to write where the result does not keep a query axis."""
    if axis in over:
        return "name an axis that is not reduced"
    return f"name one that it has, or add this one with X + 0 * nk.index({axis!r})"


def check_key_set(keys: object) -> None:
    """Refuse what is no key set.

    Raises:
        InputError: it is none.
    """
    if not isinstance(keys, KeySet):
        raise InputError(f"keys={keys!r} is no key set; write one such as nk.causal('q', 'x')")


def attached(keys: KeySet, x: Node, over: tuple[str, ...]) -> Node:
    """The node of `keys` on a reduction of `x` over the axes `over`.

    A set without names takes the reduced axes for its keys, and the axes of `x` that are left for
    its queries.

    Raises:
        InputError: the axes do not fit, or `keys` is no key set.
    """
    check_key_set(keys)
    for axis in over:
        check_known(
            axis, x.axes, f"over {axis!r}: the array has axes '{' '.join(x.axes)}', not {axis!r}"
        )
    if not keys.named:
        rest = tuple(a for a in x.axes if a not in over)
        if len(over) != len(keys.key_axes) or len(rest) != len(keys.query_axes):
            raise InputError(
                f"keys={keys.text}: {len(keys.key_axes)} key axes for over='{' '.join(over)}' and "
                f"{len(keys.query_axes)} query axes among '{' '.join(rest)}'; name them with "
                "queries='...' and keys='...'"
            )
        keys = keys.over(rest, over)
    for axis in keys.key_axes:
        if axis not in over:
            raise InputError(
                f"keys={keys.text}: key axis {axis!r} is not reduced; over='{' '.join(over)}'"
            )
    made = keys.node
    for n in postorder(made.args):
        if n.op == "scalar":
            raise InputError(
                f"keys={keys.text} depends on the scalar {n.params[0]}; make it an input of whole "
                "numbers, as in '():int'"
            )
    if any(n.op == "listed" for n in postorder(made.args)):
        raise InputError(
            f"keys={keys.text}: lists of numbers are for looking at a set; in a diagram they are "
            "inputs of whole numbers, as in 'm:int'"
        )
    for axis in dict.fromkeys((*keys.query_axes, *axes_of_queries(made))):
        if axis not in x.axes or axis in over:
            raise InputError(
                f"keys={keys.text}: query axis {axis!r} is not an axis that the result keeps; the "
                f"array has '{' '.join(x.axes)}' and over='{' '.join(over)}'; "
                + _instead(axis, over)
            )
    return made
