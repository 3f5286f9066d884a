"""What a generation of GPUs offers to kernels, asked by name."""

from __future__ import annotations

from dataclasses import dataclass

FP8 = 89
"""The first compute capability with fp8."""

MAX_BOX, LINE = 256, 128
"""What a box in shared memory has at most: positions along an axis, and bytes of a row, which are
swizzled together (CUDA Programming Guide, Tensor Memory Accelerator)."""


@dataclass(frozen=True)
class Target:
    """A generation of GPUs.

    Attributes:
        capability: CUDA compute capability as ten times major plus minor; 0 without CUDA.
    """

    capability: int

    @property
    def has_descriptors(self) -> bool:
        """Whether it copies boxes of tensors (CUDA Programming Guide, TMA)."""
        return self.capability >= 90

    @property
    def has_warpgroups(self) -> bool:
        """Whether its warpgroups multiply (PTX ISA, wgmma)."""
        return self.capability == 90

    @property
    def has_fp8(self) -> bool:
        """Whether it converts and multiplies fp8 (CUDA Programming Guide, 8-bit floating point)."""
        return self.capability >= FP8

    @property
    def flattens(self) -> bool:
        """Whether a flattened loop over groups was seen to be pipelined: the next group's boxes are
        asked for before the results of this one (Triton 3.6 and 3.9)."""
        return self.has_warpgroups

    def transposes(self, tile: tuple[int, int], item_bytes: int) -> bool:
        """Whether a tile is multiplied as what it is where a product takes it transposed.

        From Hopper on, a tile lies in shared memory in boxes. Triton lists the boxes down the first
        dimension before those along the second, of a tile and of its transpose alike: so where
        there are several both ways, what one order has stored is read in the other, and all values
        are wrong (`nvmmaSharedToLinearLayout` in Triton 3.6 and 3.9; since it takes tiles of more
        than 256 rows, pull request 6776). Strides decide which dimension lies in rows.
        """
        short, long = sorted(tile)
        return not self.has_descriptors or long <= MAX_BOX or short * item_bytes <= LINE

    def slots(self, stages: int) -> int:
        """Chunks for which Triton makes room in shared memory: from Hopper on the one that is
        multiplied stays there."""
        return stages if self.capability >= 90 else max(stages - 1, 1)


def target_of(arch: str) -> Target:
    """The target of an architecture such as "sm_90"; of one without CUDA, that has nothing."""
    return Target(int(arch.removeprefix("sm_").rstrip("af")) if arch.startswith("sm_") else 0)
