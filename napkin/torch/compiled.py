"""Any diagram as a function on torch tensors."""

from __future__ import annotations

from typing import Any

import torch

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.torch.function import Function
from napkin.torch.given import captured, scalar
from napkin.torch.keys import registered
from napkin.torch.ops import Call, asked, recorded, run, warm


class Compiled:
    """A diagram on torch tensors; made by `compile`.

    Attributes:
        diagram: what is computed.
    """

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram
        self._function = registered(Function(diagram))
        self._key, self._takes = self._function.key, len(diagram.inputs)
        self._scalars = tuple(diagram.scalars.items())
        self._defaults = tuple(diagram.scalars.values())
        self._all_known = not any(v != v for v in self._defaults)

    def __call__(self, /, *arrays: torch.Tensor, **scalars: float) -> Any:
        """The outputs, one or a tuple, in the storage type of the inputs.

        Args:
            arrays: in the order and with the axes of the diagram's inputs, of any strides.
            scalars: values of the diagram's scalars, over their defaults.

        Raises:
            InputError: the tensors or scalars do not fit the diagram.
            Refusal: no kernel fits the machine.
        """
        values = self._values(scalars) if scalars or not self._all_known else self._defaults
        seen = captured(self.diagram.name, arrays)
        if seen == "recorded":
            out = recorded(Call(self._key, asked(arrays), values), *arrays)
        elif seen or not arrays:
            out = run(arrays, self._key, values)
        else:
            out = warm(self._function, arrays, values)(arrays)
        return out[0] if len(out) == 1 else tuple(out)

    def _values(self, scalars: dict[str, float]) -> tuple[float, ...]:
        self.diagram.check_scalars(dict.fromkeys(scalars, 0.0))  # says what is unknown or missing
        name = self.diagram.name
        return tuple(scalar(name, k, scalars.get(k, default)) for k, default in self._scalars)

    def __reduce__(self) -> tuple[Any, ...]:
        """A process that is sent it knows its key, too."""
        return compile, (self.diagram,)

    def __repr__(self) -> str:
        return f"napkin.torch.compile({self.diagram!r})"


def compile(diagram: Diagram) -> Compiled:
    """`diagram` as a function on torch tensors: kernels are derived for the tensors' sizes, type
    and device when it is first called, and kept on disk (see `napkin.torch.cache`).

    Raises:
        InputError: it is no diagram.
    """
    if not isinstance(diagram, Diagram):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"napkin.torch.compile takes a diagram, as nk.diagram makes it, not {diagram!r}"
        )
    return Compiled(diagram)
