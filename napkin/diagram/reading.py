"""Numbers as a user gives them: numpy arrays, torch tensors, lists, of the item types of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napkin.errors import InputError
from napkin.ir.node import Kind, Node
from napkin.ir.packing import unpack
from napkin.ir.storage import storage_type
from napkin.ir.types import PACKED, RANGES

if TYPE_CHECKING:
    import numpy as np

_HOLDS: dict[Kind, str] = {"real": "real numbers", "int": "whole numbers", "bool": "true or false"}


def numbers(given: Any, leaf: Node, diagram: str) -> np.ndarray[Any, Any]:
    """What was given for an input: float64 if it is real, else int64 (booleans as 0 and 1).

    Bytes (int8 or uint8) for an input of 4 bits hold two values each; wider numbers are the values
    themselves. Any strides will do: transposed, broadcast and reversed views are read as what they
    show.

    Raises:
        InputError: it is no array of numbers, or holds a number that the input's item type lacks.
    """
    import numpy as np

    where = f"{diagram}: {leaf.params[0]}"
    found, dtype = _as_numpy(given, where), storage_type(leaf, "")
    if dtype in PACKED and found.ndim and found.dtype in (np.uint8, np.int8):
        return unpack(found, dtype)
    if found.dtype.kind not in "biufO":
        raise InputError(f"{where} holds {_HOLDS[leaf.kind]}, not {found.dtype}")
    try:
        with np.errstate(all="ignore"):
            wide = found.astype(float, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where} holds {_HOLDS[leaf.kind]}: {error}") from None
    if leaf.kind == "real":
        return wide
    if leaf.kind == "bool":
        return (wide != 0).astype(np.int64)
    holds = RANGES[dtype]
    bad = (wide != np.floor(wide)) | (wide < holds[0]) | (wide > holds[-1])
    if bad.any():
        said = "int" if dtype == "int32" else dtype
        raise InputError(
            f"{where} holds whole numbers in {dtype}, as ':{said}' in the signature says, "
            f"not {wide[bad].flat[0]:g}"
        )
    return found.astype(np.int64)


def _as_numpy(given: Any, where: str) -> np.ndarray[Any, Any]:
    import numpy as np

    if hasattr(given, "detach"):  # a torch tensor, of any device, dtype and layout
        given = given.detach()
        if given.device.type == "meta":
            raise InputError(f"{where} is on the device 'meta' and has no numbers")
        if str(given.layout) != "torch.strided":
            raise InputError(f"{where} is {given.layout}; give it as .to_dense()")
        given = given.cpu()
        if given.is_floating_point():
            given = given.double()  # numpy has no bf16
        try:
            return given.resolve_conj().resolve_neg().numpy()
        except TypeError as error:  # as of quantised tensors
            raise InputError(f"{where} is no array of numbers: {error}") from None
    try:
        return np.asarray(given)
    except ValueError as error:
        raise InputError(f"{where} is no array: {error}") from None
