"""The types in which numbers lie in memory: adding one is adding a row here, and what encodes it
(`napkin.run.formats`)."""

from __future__ import annotations

from dataclasses import dataclass

from napkin.ir.node import INT32, Kind


@dataclass(frozen=True)
class Storage:
    """How numbers of one type lie in memory.

    Attributes:
        bits: of one value; two values of 4 bits share a byte.
        kind: what they are: "real", "int" or "bool".
        torch: torch's name of the elements of such a tensor.
        format: what `napkin.run.formats` calls it, after Triton's signatures.
        flops, special: operations that convert a value to bf16, of those that an `Operator` has:
            the instructions of sm_90 (Triton 3.6), less those that move tiles.
    """

    bits: int
    kind: Kind
    torch: str
    format: str
    flops: int = 0
    special: int = 0


STORAGE: dict[str, Storage] = {
    "bf16": Storage(16, "real", "bfloat16", "bf16"),
    "fp16": Storage(16, "real", "float16", "fp16"),
    "fp32": Storage(32, "real", "float32", "fp32"),
    "fp8": Storage(8, "real", "float8_e4m3fn", "fp8e4nv", flops=2, special=1),
    "int32": Storage(32, "int", "int32", "i32"),
    "int8": Storage(8, "int", "int8", "i8", flops=2),
    "uint8": Storage(8, "int", "uint8", "u8", flops=2, special=1),
    "int4": Storage(4, "int", "uint8", "i4", flops=9),
    "uint4": Storage(4, "int", "uint8", "u4", flops=4, special=1),
    "bool": Storage(8, "bool", "bool", "i1"),
}
"""The storage types. "fp8" is float8_e4m3fn: 4 bits of exponent, 3 of mantissa, largest 448, no
infinity (arXiv 2209.05433)."""

STORED = ("bf16", "fp16", "fp32")
"""Types in which a plan stores real numbers."""

PACKED = ("int4", "uint4")
"""Types of which two values share a byte: neighbours along the tensor's last axis, the first one in
the low half."""

RANGES = {
    "int32": INT32,
    "int8": range(-128, 128),
    "uint8": range(256),
    "int4": range(-8, 8),
    "uint4": range(16),
}
"""The whole numbers that each type holds."""

LARGEST = {"fp16": 65504.0, "fp8": 448.0}
"""The largest numbers of the types that computed numbers may well pass: what is stored of those is
infinity, or where a type has none, this."""

NEAR = 1 - 2**-8
"""From this part of the largest number on, a result may have been rounded past it."""

STEP = {"fp16": 2.0**-24, "fp8": 2.0**-9}
"""How far apart the numbers of a type lie near 0: a store moves any number by up to half of it."""


def stored_bytes(values: int, dtype: str) -> int:
    """Bytes of so many values; of packed ones there are an even number."""
    return values * STORAGE[dtype].bits // 8
