"""One kernel of a plan: what runs, and every prediction of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from napkin.bound.optimum import Term
from napkin.bound.symbolic_cost import Cost
from napkin.count.crossing import CacheTraffic
from napkin.count.requested import Requests
from napkin.count.residency import live_set, register_bytes
from napkin.count.traffic import ITEM_BYTES, Direction, Traffic
from napkin.count.visited import Bind
from napkin.derive.kernel import leaves, tensor_of
from napkin.ir.taking import table_of
from napkin.ir.types import stored_bytes
from napkin.lower.build import build
from napkin.lower.descriptors import served
from napkin.lower.group_order import Launching
from napkin.lower.parameters import Written
from napkin.lower.program import Program
from napkin.lower.warpgroups.resources import box_bytes
from napkin.lower.write import write
from napkin.machine.machines import Machine
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.labelled import Labelled, storage
from napkin.settings.specialised import cta_of, written


@dataclass(frozen=True, eq=False)
class PlannedKernel:
    """One kernel of a plan: labels, tiles, predictions, source.

    Attributes:
        choice: labels, tiles and launch settings.
        binding: the kernel's tensor names to the plan's.
    """

    choice: Choice
    binding: Mapping[str, str]
    dtype: str
    machine: Machine

    @property
    def name(self) -> str:
        """The kernel's name in its source."""
        return self.choice.kernel.name

    @cached_property
    def cost(self) -> Cost:
        """Symbolic H, M, bound and work."""
        return Cost(self.choice.kernel, tap_by_tap=True)

    @cached_property
    def byte_cost(self) -> Cost:
        """H, M and the bound in bytes, each array at what it takes; M then is bytes of memory."""
        return self.cost.in_bytes(self.dtypes, self.dtype)

    @property
    def H(self) -> Traffic:
        """Values transferred, symbolic."""
        return self.cost.H

    @property
    def M(self) -> Any:
        """Values held by one group, symbolic."""
        return self.cost.M

    @property
    def bound(self) -> Any:
        """The least H for M values of memory (s -> 0)."""
        return self.cost.bound

    @property
    def terms(self) -> tuple[Term, ...]:
        """The bound as sum of alpha * M**-beta."""
        return self.cost.terms

    @property
    def flops(self) -> Any:
        """Operations, symbolic."""
        return self.cost.flops

    @property
    def tiles(self) -> Mapping[str, int]:
        """Values of each axis that one tile holds."""
        return self.choice.schedule.tiles

    @property
    def schedule(self) -> Schedule:
        """How it runs."""
        return self.choice.schedule

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """Storage type of each tensor."""
        return storage(self.choice.kernel, self.dtype)

    @cached_property
    def bytes(self) -> dict[tuple[str, Direction], int]:
        """Predicted bytes per tensor and direction at the plan's sizes."""
        return self.bytes_at(self.choice.sizes)

    def bytes_at(
        self,
        sizes: Mapping[str, int],
        arrays: Mapping[str, Any] | None = None,
        boxed: bool | None = None,
    ) -> dict[tuple[str, Direction], int]:
        """Predicted bytes per tensor and direction at other sizes, with the same tiles.

        Args:
            arrays: tensors by name, of which the key set may read some (documents, say).
            boxed: whether chunks are read through tensor descriptors, in whole boxes; by default
                as row-major tensors of these sizes are.
        """
        if boxed is None:
            boxed = served(self.program, sizes)
        whole = self.program.in_boxes if boxed else ()
        return self.H.bytes(sizes, self.schedule, self.dtypes, self._bind(arrays), whole)

    def crossing_at(
        self,
        sizes: Mapping[str, int],
        arrays: Mapping[str, Any] | None = None,
        spilled: int = 0,
    ) -> dict[tuple[str, Direction], int]:
        """Predicted bytes between L2 and the multiprocessors per tensor and direction, at other
        sizes with the same tiles: `bytes_at` is what groups ask for, and this what passes, less
        what L1 has, more where sectors and boxes are used in part.

        Args:
            spilled: bytes that a thread stores of registers that it runs out of, as compiled; they
                are written under no tensor's name.
        """
        kernel = self.choice.kernel
        boxed = self.program.in_boxes if served(self.program, sizes) else frozenset[str]()
        bind, sizes = self._bind(arrays), kernel.sized(sizes)
        own = self.H.of_groups
        ahead = self._copied(sizes) if self.schedule.stages > 1 else frozenset[str]()
        moved = [(t, t.values(sizes, self.tiles, bind, t.tensor in boxed)) for t in own]
        requests = Requests(moved, sizes, self.tiles, self.dtypes, kernel.group, boxed, ahead, bind)
        launching = Launching(kernel, ITEM_BYTES[self.dtype])
        order = launching.order(sizes, self.tiles, self.schedule.swizzle)
        beside = order, self.choice.resident, self.shared_bytes
        out = CacheTraffic(requests, self.machine, *beside).crossing()
        if spilled:
            threads = int(self.machine.granules["warp"].value) * self.schedule.warps
            out["", "write"] = spilled * threads * requests.groups
        return out

    def _copied(self, sizes: Mapping[str, int]) -> frozenset[str]:
        """The arrays that are copied to shared memory ahead of their use: of a kernel of
        warpgroups, operands."""
        kernel = self.choice.kernel
        if self.schedule.warpgroups:
            return frozenset(t for t, _ in live_set(kernel).streamed_operands)
        return Labelled(kernel, sizes, self.dtype, self.machine).copied

    def _bind(self, arrays: Mapping[str, Any] | None) -> Bind | None:
        """The inputs that the key set reads, from tensors by their names in the plan."""
        if arrays is None:
            return None
        own = {leaf: tensor_of(leaf) for leaf in leaves(self.choice.kernel.terms)}
        known = {n: self.binding[t] for n, t in own.items() if self.binding[t] in arrays}
        return {table_of(n): arrays[t] for n, t in known.items()}

    @cached_property
    def program(self) -> Program:
        """The loop program; of a warp-specialised CTA, that of one group."""
        return build(self.choice.kernel, self.schedule, ITEM_BYTES[self.dtype])

    @cached_property
    def written(self) -> Written:
        """The kernel's function, and its arguments."""
        return written(self.choice) if self.schedule.warpgroups else write(self.program)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one group, in bytes, as the search estimates it: of operands, in as many
        copies as there are stages. Of a kernel of warpgroups, with barriers and what its warps are
        passed."""
        return self.choice.shared

    @property
    def operand_bytes(self) -> int:
        """Bytes of shared memory that the compiler allocates at least: of the largest box, which
        the hardware copies there and nowhere else. Operands without boxes may stay in registers,
        and one may take the place of another. Of a kernel of warpgroups, of all boxes."""
        if self.schedule.warpgroups:
            return box_bytes(cta_of(self.choice))
        if not served(self.program, self.choice.sizes):
            return 0
        program, dtypes = self.program, self.dtypes
        boxes = ((program.span(program.shape(n)), dtypes[tensor_of(n)]) for n in program.boxes)
        return max((stored_bytes(*box) for box in boxes), default=0)

    def to_json(self) -> dict[str, Any]:
        """The kernel as plain data; expressions are sympy text."""
        by_tensor: dict[str, int] = {}
        for (tensor, _), count in self.bytes.items():
            by_tensor[tensor] = by_tensor.get(tensor, 0) + count
        return {
            "name": self.name,
            "tensors": dict(self.binding),
            "H": {
                "total": str(self.H.total),
                "per_step": str(self.H.per_step),
                "per_tensor": {t: str(e) for t, e in self.H.per_tensor.items()},
            },
            "M": str(self.M),
            "M_levels": {level: str(e) for level, e in self.cost.levels.items()},
            "bound": str(self.bound),
            "terms": [{"alpha": str(t.alpha), "beta": str(t.beta)} for t in self.terms],
            "flops": str(self.flops),
            **self.schedule.to_json(),
            "bytes": by_tensor,
            "shared_bytes": self.shared_bytes,
            "register_bytes": register_bytes(live_set(self.choice.kernel), self.tiles),
            "time_us": round(self.choice.time.seconds * 1e6, 3),
            "limited_by": self.choice.time.limited_by,
        }


def distinct(kernels: Sequence[PlannedKernel]) -> list[PlannedKernel]:
    """Kernels of a plan, each once however often it runs."""
    return list({id(k.choice): k for k in kernels}.values())
