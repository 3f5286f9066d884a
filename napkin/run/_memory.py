"""The memory that an interpreted kernel sees: its arguments, and who touched them.

Runs in the interpreting child only. Every argument lies in an allocation of its own, so an address
belongs to one argument; a map of the live elements makes the bounds exact for strided views too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from napkin.run._wire import Packed

_GUARD = 4096  # bytes of nobody's memory on each side of an argument
_ALIGNMENT = 256  # bytes; what device allocators give


class BadAccess(Exception):
    """An access outside the live elements of every argument."""


class _Region:
    """One argument in the child's memory."""

    def __init__(self, name: str, packed: Packed) -> None:
        extent = packed.raw.size
        self.name = name
        self.packed = packed
        self.size = extent
        self.itemsize = np.dtype(packed.storage).itemsize
        self._arena = np.empty(extent + 2 * _GUARD + _ALIGNMENT, np.uint8)
        start = self._arena.ctypes.data + _GUARD
        shift = (packed.misalignment - packed.first - start) % _ALIGNMENT
        self.base = start + shift
        self.bytes = self._arena[_GUARD + shift : _GUARD + shift + extent]
        self.bytes[:] = packed.raw
        self.pointer = self.base + packed.first
        self._live: np.ndarray | None = None
        if extent:
            live = np.zeros(extent // self.itemsize, np.bool_)
            steps = [step // self.itemsize for step in packed.strides]
            first = packed.first // self.itemsize
            np.ndarray(packed.shape, np.bool_, live, first, steps)[...] = True
            self._live = None if live.all() else live

    def wrong(self, addresses: np.ndarray, width: int) -> np.ndarray | None:
        """Which of `addresses`, all inside the extent, are no live element; None for all good."""
        offsets = (addresses - np.uint64(self.base)).astype(np.int64)
        bad = offsets % width != 0 if width > 1 else None
        if self._live is not None:
            dead = ~self._live[offsets // self.itemsize]
            bad = dead if bad is None else bad | dead
        return bad if bad is not None and bad.any() else None

    def where(self, address: int) -> str:
        """`address` in words, relative to this argument."""
        shape = "x".join(map(str, self.packed.shape)) or "scalar"
        array = f"{self.name} ({shape} {self.packed.dtype})"
        if address < self.base:
            return f"{self.base - address} bytes before the first element of {array}"
        if address >= self.base + self.size:
            past = address - self.base - self.size
            return f"{past} bytes past the last element of {array}"
        return f"{address - self.base} bytes into {array}, where its strides leave a gap"


@dataclass
class Memory:
    """Every array argument of one launch, and the bytes moved so far.

    Attributes:
        bytes: bytes moved by (argument, ``"read"``, ``"write"`` or ``"add"``).
    """

    bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    _regions: list[_Region] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def clear(self) -> None:
        """Forget every argument and every byte, for the next launch."""
        self.bytes.clear()
        self._regions.clear()
        self._starts.clear()

    def place(self, name: str, packed: Packed) -> int:
        """Copy an argument in and return the address of its first element."""
        region = _Region(name, packed)
        self._regions.append(region)
        self._regions.sort(key=lambda each: each.base)
        self._starts = [each.base for each in self._regions]
        return region.pointer

    def contents(self, name: str) -> np.ndarray:
        """The bytes of an argument as they are now."""
        return next(each.bytes for each in self._regions if each.name == name)

    def touch(
        self, pointers: np.ndarray, mask: np.ndarray, width: int, directions: tuple[str, ...]
    ) -> None:
        """Count an access of `width` bytes at each of `pointers` where `mask`, if it is legal."""
        live = int(np.count_nonzero(mask))
        if not live:
            return
        if mask.shape != pointers.shape:
            mask = np.broadcast_to(mask, pointers.shape)
        addresses = pointers.reshape(-1) if live == mask.size else pointers[mask]
        region = self._owner(int(addresses.min()))
        if region is None or int(addresses.max()) + width > region.base + region.size:
            self._touch_each(addresses, width, directions)
            return
        wrong = region.wrong(addresses, width)
        if wrong is not None:
            raise BadAccess(region.where(int(addresses[wrong.argmax()])))
        for direction in directions:
            self.bytes[region.name, direction] += live * width

    def _owner(self, address: int) -> _Region | None:
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        region = self._regions[index]
        return region if address < region.base + region.size else None

    def _touch_each(self, addresses: np.ndarray, width: int, directions: tuple[str, ...]) -> None:
        """The slow way: the lanes of one access may point into several arguments."""
        for address in addresses.tolist():
            region = self._owner(address)
            if region is None or address + width > region.base + region.size:
                raise BadAccess(self._nearest(address))
            if region.wrong(np.array([address], np.uint64), width) is not None:
                raise BadAccess(region.where(address))
            for direction in directions:
                self.bytes[region.name, direction] += width

    def _nearest(self, address: int) -> str:
        if not self._regions:
            return "the kernel has no array arguments"

        def distance(region: _Region) -> int:
            return max(region.base - address, address - region.base - region.size)

        return min(self._regions, key=distance).where(address)
