"""Diagrams: a function traced once on named-axis arrays, and the moves on it.

A `Diagram` is immutable. It evaluates, weaves, composes, draws, costs and derives; the moves that
need rooms above are made through `napkin.diagram.moves`.
"""

from __future__ import annotations

import keyword
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from napkin.diagram import joining, moves
from napkin.diagram import sizes as checks
from napkin.diagram.interface import Interface
from napkin.errors import InputError, check_known
from napkin.ir.array import Array, as_float, lifted
from napkin.ir.infer import reals
from napkin.ir.listing import listing
from napkin.ir.names import axis_names
from napkin.ir.node import Node, node, postorder
from napkin.ir.rewrite import rewrite
from napkin.ir.storage import leaf
from napkin.ir.types import STORAGE

if TYPE_CHECKING:
    import numpy as np

INNER_NAMES: ContextVar[dict[Node, str]] = ContextVar("INNER_NAMES")
"""What the diagrams that a traced function calls say their arrays are called; set while tracing."""


LONGEST = 128
"""Characters of a diagram's name, which files and kernels have, too."""


def function_name(name: str) -> str:
    """A name that a user gave to a diagram, whose kernel is a function of that name, as Python
    reads it: of letters that look like others, the plain ones.

    Raises:
        InputError: no function can have it.
    """
    name = unicodedata.normalize("NFKC", str(name))
    if len(name) > LONGEST:
        raise InputError(
            f"name={name[:20]!r}... has {len(name)} characters; write at most {LONGEST}"
        )
    if keyword.iskeyword(name):
        raise InputError(
            f"name={name!r} is a reserved word of Python, and the kernel is a function of that "
            f"name; write another, such as name='{name}_'"
        )
    if not name.isidentifier():
        raise InputError(
            f"name={name!r} is no name for the kernel's function; write letters, digits and _, as "
            "in name='my_kernel'"
        )
    return name


@dataclass(frozen=True, eq=False, repr=False)
class Diagram(Interface):
    """An algorithm as a term over named axes (arXiv 2412.03317, section 2)."""

    def __repr__(self) -> str:
        left = ", ".join(f"{n.params[0]}[{' '.join(n.axes)}]" for n in self.inputs)
        right = ", ".join(f"{o.name}[{' '.join(o.axes)}]" for o in self.outputs)
        rows = [(o.name, o.node, o.axes) for o in self.outputs]
        return listing(f"{self.name}: {left} -> {right}", rows, self.names)

    # --- sizes ------------------------------------------------------------------------------

    check_sizes = checks.check_sizes
    sizes_of = checks.sizes_of
    check_scalars = checks.check_scalars

    def read(self, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """The numbers of the inputs, in order, from numpy arrays (or anything numpy can read).

        Raises:
            InputError: there are more or fewer arrays, or one holds no numbers of its input.
        """
        from napkin.diagram.reading import numbers

        checks.check_count(self, arrays)
        return [numbers(a, n, self.name) for a, n in zip(arrays, self.inputs, strict=True)]

    # --- what it computes -------------------------------------------------------------------

    def evaluate(self, /, *arrays: Any, **scalars: float) -> Any:
        """The value in float64, from numpy arrays (or anything numpy can read).

        One output gives an array, several give a tuple.

        Raises:
            InputError: the arrays do not fit the signature.
        """
        import numpy as np

        from napkin.ir.evaluate import aligned, evaluate
        from napkin.ir.expansion import expanded

        values = self.read(arrays)
        sizes = self.sizes_of([a.shape for a in values])
        opened = expanded(self.roots)
        roots = [opened[n] for n in self.roots]
        by_name = dict(zip(self.input_names, values, strict=True))
        bind = {n: by_name[str(n.params[0])] for n in postorder(roots) if n.op == "input"}
        found = evaluate(roots, bind, sizes, self.check_scalars(scalars))
        out = tuple(
            np.array(
                np.broadcast_to(aligned(value, n.axes, o.axes), tuple(sizes[a] for a in o.axes))
            )
            for value, n, o in zip(found, roots, self.outputs, strict=True)
        )
        return out[0] if len(out) == 1 else out

    # --- how it grows -----------------------------------------------------------------------

    def weave(self, axes: str, into: str = "") -> Diagram:
        """The diagram mapped over more axes (arXiv 2412.03317, section 2; vmap with named axes).

        Every output gains `axes` in front; so does every input, or only those named in `into`,
        and then the other inputs are shared by all positions.

        Raises:
            InputError: an axis is in use already, or `into` names no input.
        """
        new = axis_names(axes, f"weave({axes!r})")
        if not new:
            raise InputError("weave('') adds no axis; name one, as in weave('b h')")
        for axis in new:
            if axis in self.axes:
                raise InputError(
                    f"weave({axes!r}): {self.name} has an axis {axis!r} already; "
                    "choose another name"
                )
        if not isinstance(into, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"weave into={into!r}: write the inputs in one text, as in into='K V'")
        known = self.input_names
        chosen = into.replace(",", " ").split() or known
        for name in chosen:
            check_known(
                name, known, f"weave({axes!r}, into={into!r}): {self.name} has no input {name!r}"
            )
        grown = {
            n: node("input", params=n.params, axes=new + n.axes, kind=n.kind)
            for n in self.inputs
            if str(n.params[0]) in chosen
        }
        return self._on(grown, new)

    def _on(self, by: Mapping[Node, Node], front: tuple[str, ...]) -> Diagram:
        """This diagram with other leaves; the axes `front` lead every output."""
        done = rewrite([*self.inputs, *self.roots], lambda old, _: by.get(old))
        outputs = tuple(replace(o, node=done[o.node], axes=front + o.axes) for o in self.outputs)
        return replace(
            self,
            inputs=tuple(done[n] for n in self.inputs),
            outputs=outputs,
            names={done[n]: text for n, text in self.names.items() if n in done},
        )

    def named(self, name: str) -> Diagram:
        """The same diagram under another name.

        Raises:
            InputError: no function can have it.
        """
        return replace(self, name=function_name(name))

    def with_sizes(self, /, **sizes: int) -> Diagram:
        """The same diagram with other default sizes, over those that it has.

        Raises:
            InputError: an axis is unknown, or a size is not a whole number in range.
        """
        return replace(self, sizes=checks.check_sizes(self, sizes, partial=True))

    def stored(self, /, **storage: str) -> Diagram:
        """The same diagram with other storage types of its inputs, by their names:
        `attention.stored(K="fp8", V="fp8")`.

        Raises:
            InputError: there is no such input or storage type, or it holds numbers of another kind.
        """
        known = dict(zip(self.input_names, self.inputs, strict=True))
        grown: dict[Node, Node] = {}
        for name, dtype in storage.items():
            check_known(name, known, f"{self.name} has no input {name!r}")
            check_known(dtype, STORAGE, f"{self.name}: {name} as {dtype!r}: no such storage type")
            n = known[name]
            if STORAGE[dtype].kind != n.kind:
                raise InputError(
                    f"{self.name}: {name} holds values of kind {n.kind!r}, and {dtype} holds "
                    f"{STORAGE[dtype].kind!r}; say so in the signature, as in "
                    f"'{' '.join(n.axes)}:{dtype}'"
                )
            grown[n] = leaf(name, n.axes, n.kind, dtype)
        return self._on({n: grown.get(n, n) for n in self.inputs}, ())

    def __call__(self, /, *arrays: Array, **scalars: Any) -> Any:
        """Apply the diagram to arrays of the diagram that is being traced.

        Each array carries the axes of its input; axes beyond those are weaved. (To compute on
        numbers, use `evaluate`, or derive a plan and call that.)
        """
        if len(arrays) != len(self.inputs):
            raise InputError(f"{self.name} takes {len(self.inputs)} arrays, not {len(arrays)}")
        by: dict[Node, Node] = {}
        for have, n in zip(arrays, self.inputs, strict=True):
            if not isinstance(have, Array):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InputError(
                    f"{self.name} was called on a {type(have).__name__}; use "
                    f"{self.name}.evaluate(...) for numbers, or a plan from nk.derive"
                )
            lacking = [a for a in n.axes if a not in have.axes]
            clash = [a for a in have.axes if a not in n.axes and a in self.axes]
            if lacking or clash:
                what = f"lacks axis {lacking[0]!r}" if lacking else f"brings axis {clash[0]!r}, too"
                raise InputError(
                    f"{self.name}: {n.params[0]} has axes '{' '.join(n.axes)}', but the array "
                    f"given, '{' '.join(have.axes)}', {what}; rename axes with nk.rename"
                )
            by[n] = joining.as_input(have.node, n, self.name)
        for name in scalars:
            check_known(name, self.scalars, f"{self.name} has no scalar {name!r}")
        if unset := [k for k, v in self.scalars.items() if k not in scalars and math.isnan(v)]:
            raise InputError(f"{self.name} needs a value for the scalar {', '.join(unset)}")
        given = {**self.scalars, **scalars}
        scalar_nodes = {
            node("scalar", params=(k,)): reals(lifted(as_float(v) if isinstance(v, int) else v))
            for k, v in given.items()
        }
        done = rewrite(self.roots, lambda old, _: by.get(old) or scalar_nodes.get(old))
        names = INNER_NAMES.get({})
        for n, text in (*self.names.items(), *((o.node, o.name) for o in self.outputs)):
            if n in done and n.op != "input":
                names.setdefault(done[n], text)
        out = tuple(Array(done[n]) for n in self.roots)
        return out[0] if len(out) == 1 else out

    def __rshift__(self, other: Diagram) -> Diagram:
        """Composition: the outputs of this diagram are the inputs of `other`, in order. Scalars of
        one name are one, and have one default value.

        Raises:
            InputError: `other` is no diagram; inputs are not as many as outputs, or have other axes
                or item types; or a scalar has two values, or an axis two meanings.
        """
        if not isinstance(other, Diagram):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"{self.name} >> {other!r}: the right side is no diagram; put @nk.diagram above it"
            )
        if len(self.outputs) != len(other.inputs):
            raise InputError(
                f"{self.name} >> {other.name}: {len(self.outputs)} outputs, but "
                f"{len(other.inputs)} inputs"
            )
        for o, n in zip(self.outputs, other.inputs, strict=True):
            if set(o.axes) != set(n.axes):
                raise InputError(
                    f"{self.name} >> {other.name}: {o.name} has axes '{' '.join(o.axes)}', but "
                    f"{n.params[0]} has '{' '.join(n.axes)}'"
                )
        joining.check_scalars(self, other)
        joining.check_axes(self, other)
        joining.check_sizes(self, other)
        pairs = zip(other.inputs, self.roots, strict=True)
        by = {n: joining.as_input(root, n, other.name) for n, root in pairs}
        done = rewrite(other.roots, lambda old, _: by.get(old))
        return replace(
            other,
            name=f"{self.name}_{other.name}",
            inputs=self.inputs,
            outputs=joining.outputs(self, other, done),
            scalars={**self.scalars, **other.scalars},
            names={**self.names, **{done[n]: t for n, t in other.names.items() if n in done}},
            sizes={**self.sizes, **other.sizes},
        )

    # --- moves of the other rooms -----------------------------------------------------------

    def stream(
        self,
        axis: str,
        chunk: int | None = None,
        passes: int = 1,
        hold: Iterable[str] = (),
        pair: int = 0,
    ) -> Any:
        """Stream `axis` in chunks; see `napkin.moves.derivation.Derivation.stream`."""
        return moves.made("start", self).stream(axis, chunk, passes, hold, pair)

    def group(self, /, *axes: str, **tiles: int | None) -> Any:
        """Partition axes into groups; see `napkin.moves.derivation.Derivation.group`."""
        return moves.made("start", self).group(*axes, **tiles)

    def draw(self) -> str:
        """The neural circuit diagram as SVG text."""
        return cast(str, moves.made("draw", self))
