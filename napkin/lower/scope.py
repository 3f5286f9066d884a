"""Names in a kernel: tensors, sizes, strides, positions and values, all from the diagram."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property

from napkin.ir.key_sets import boxes_of, spec_of
from napkin.ir.listing import stem_of
from napkin.ir.names import numbered
from napkin.ir.node import LEAVES, Node, postorder
from napkin.ir.operators import FUNCTIONS
from napkin.lower import syntax as sx
from napkin.lower.bit_words import DISJOINT, OUTSIDE, PLACE
from napkin.lower.per_thread import EACH, PerThread
from napkin.lower.program import Program
from napkin.lower.spelling import TRITON, Language

DESCRIPTORS = "DESCRIPTORS"
"""The constexpr that says whether boxes are read through tensor descriptors."""

SECTION = "SECTION"
"""The argument that says how many groups along the axes beside the rising ones take turns."""

GROUP, GROUPS = "group", "groups"
"""The number of the group that a persistent program instance is at, and how many there are."""

_TAKEN = {
    DESCRIPTORS, SECTION, GROUP, GROUPS, "tl", "triton", "range", "float", "pid", "section",
    "width", "within", "WIDE", "INDEX",
}  # fmt: skip

_LAUNCH = {
    "self", "grid", "warmup", "device", "device_type", "stream",
    "num_warps", "num_ctas", "num_stages", "warp_size", "maxnreg", "ptx_version", "ptx_options",
    "ir_override", "enable_fp_fusion", "sched4reg", "enable_reflect_ftz",
    "launch_cooperative_grid", "launch_pdl", "clc", "supported_fp8_dtypes",
    "deprecated_fp8_dot_operand_dtypes", "default_dot_input_precision",
    "allowed_dot_input_precisions", "max_num_imprecise_acc_default", "extern_libs", "debug",
    "backend_name", "sanitize_overflow", "arch", "instrumentation_mode", "fpsan_homomorphic_casts",
    "min_shared_mem",
    "params", "specialization", "options", "backend", "specialize_impl", "JITCallable",
}  # fmt: skip
"""What a launch by Triton takes beside a kernel's own arguments, its options among them, and the
names in the function that it writes to read them."""

_NAMES = {"max": "top", OUTSIDE: "outside", PLACE: "place", DISJOINT: "seen"}
"""What values are called that only kernels have, and a chunk's maximum beside the running one."""


def named(what: str, text: str) -> Callable[[Scope, str], str]:
    """A method of a scope that names something of an axis or of a tensor: `text` with `{}` for it,
    or `{upper}` for it in capitals."""

    def of_this(scope: Scope, of: str) -> str:
        return scope.name((what, of), text.format(of, upper=of.upper()))

    return of_this


class Scope:
    """Gives every thing of a program one name, and no name to two things, in one language."""

    tensor = named("tensor", "{}")
    """The pointer argument of a tensor."""
    size = named("size", "size_{}")
    """The argument with the size of an axis."""
    block = named("block", "BLOCK_{upper}")
    """The constexpr with the tile size of an axis."""
    even = named("even", "EVEN_{upper}")
    """The constexpr that says that tiles divide an axis."""
    step = named("step", "STEP_{upper}")
    """The constexpr that divides the length and the strides of rows along an axis."""
    pair = named("pair", "{}_pair")
    """Positions, in pairs of values, along an axis along which two share a byte."""
    pair_inside = named("pair inside", "{}_pair_in")
    """Which of these pairs lie within the axis."""
    start = named("start", "{}_start")
    """The first position of a chunk."""
    group_id = named("id", "{}_id")
    """Which group of an axis this program instance works on."""
    fresh = named("fresh", "{}_new")
    """The new value of a carried one."""
    joined = named("joined", "{}_all")
    """A carried value that lanes kept by themselves, joined."""
    done = named("done", "{}_tile")
    """A tile of an output, ready to be stored."""

    def __init__(self, program: Program, lang: Language = TRITON) -> None:
        self.program, self.lang = program, lang
        self._used: set[str] = self.taken(program)
        self._names: dict[object, str] = {}
        for axis in program.kernel.axes:
            self.name(("position", axis), axis)
        for tensor in self.tensors:
            self.tensor(tensor)

    @staticmethod
    def taken(program: Program) -> set[str]:
        """Names that mean something else in a kernel."""
        return {*_TAKEN, *_LAUNCH, *FUNCTIONS}

    def seen_as(self, program: Program) -> Scope:
        """The same names for a program seen in another way."""
        twin = copy.copy(self)
        twin.program = program
        return twin

    @property
    def tensors(self) -> tuple[str, ...]:
        """Inputs in order of use, then outputs."""
        return self.program.kernel.tensors

    def name(self, key: object, wanted: str) -> str:
        """The name of a thing, as it is wanted where nothing else has it."""
        if key not in self._names:
            self._names[key] = numbered(wanted, self._used, "_")
            self._used.add(self._names[key])
        return self._names[key]

    def length(self, axis: str) -> str:
        """How far an axis goes for this group: its size, or the places of the group's residue."""
        if axis in self.program.kernel.ragged:
            return self.name(("length", axis), f"{axis}_length")
        return self.size(axis)

    def stride(self, tensor: str, axis: str) -> str:
        """The argument with a tensor's stride along an axis, in values."""
        return self.name(("stride", tensor, axis), f"{tensor}_stride_{axis}")

    def position(self, axis: str) -> str:
        """Positions along an axis of this tile's values; of an axis of blocks, the group's."""
        for b in self.program.kernel.blocks:
            if axis == b.place == self.program.kernel.partial:
                return self.group_id(b.axis)
        return self.name(("position", axis), axis)

    def inside(self, axis: str) -> str:
        """Which of these positions lie within the axis."""
        return self.name(("inside", axis), f"{axis}_in")

    def base(self, key: Node | str, tensor: str) -> str:
        """A tensor's pointer, moved to this group along its scalar axes."""
        if isinstance(key, Node) and key.args:  # its loops read it under masks of their own
            return self.name(("base", tensor, key.params, key.axes), f"{tensor}_base")
        return self.name(("base", key), f"{tensor}_base")

    def place(self, leaf: Node, tensor: str, axis: str) -> str:
        """Where a reading of a tensor reads along one of its axes, where that is computed; another
        reading may do so elsewhere, in another loop."""
        return self.name(("place", leaf, axis), f"{tensor}_{axis}")

    def own(self, axis: str) -> str:
        """The group of an axis itself: each of the warpgroups along it has one."""
        if axis != self.program.schedule.axis:
            return self.group_id(axis)
        return self.name(("own", axis), f"{axis}_own")

    def spanned(self, axis: str) -> sx.Expr:
        """How many positions of an axis this program instance has."""
        schedule = self.program.schedule
        many = schedule.warpgroups if axis == schedule.axis else 1
        return sx.binary(self.block(axis), "*", many)

    def corner(self, axis: str, which: str) -> str:
        """The first or the last position of this group along an axis."""
        return self.name(("corner", axis, which), f"{axis}_{which}")

    def visit(self, axis: str, box: int, what: str) -> str:
        """Something about the chunks of a box of keys along one axis: "first", "end", "tiles" and
        the like."""
        if what.startswith("slab") or what.endswith(("_width", "_over", "_at")):
            return self.name(("visit", what), what)
        stem = f"{axis}_{what}" if box == 0 else f"{axis}{box + 1}_{what}"
        return self.name(("visit", axis, box, what), stem)

    def lane(self, dim: int) -> str:
        """The lane along a tile dimension that several axes share."""
        return self.name(("lane", dim), "_".join(self.program.dims[dim]) + "_lane")

    def constant(self, n: Node) -> str:
        """An argument that the launcher computes from sizes and scalars."""
        if n.op == "scalar":
            return self.name(n, str(n.params[0]))
        return self.name(n, self.program.kernel.names.get(n, "scale"))

    def value(self, n: Node) -> str:
        """A tile."""
        named = self.program.kernel.names.get(n)
        if n.op == "input":
            named = f"{n.params[0]}_tile"
        if named is None and n.op in {"mask", "where"}:
            inner = n.args[n.op == "where"]
            base = self.program.kernel.names.get(inner)
            named = f"{base or stem_of(inner)}_in" if base or n.op == "mask" else None
        below = [a for a in postorder([n]) if a.op in LEAVES and a.op != "number"]
        if (
            n.op in {"exp", "exp2"}
            and "state" in {a.op for a in below}
            and all(a.op == "state" or a.constant for a in below)
        ):
            named = "rescale"
        return self.name(n, named or self._bounds.get(n) or _NAMES.get(n.op) or stem_of(n))

    @cached_property
    def _bounds(self) -> dict[Node, str]:
        """The first key of each box that a query sees, and the end, along every key axis."""
        out: dict[Node, str] = {}
        for n in postorder(o.node for o in self.program.kernel.origin):
            for box in boxes_of(n) if n.op == "keys" else ():
                for axis, i in zip(spec_of(n).keys, box.intervals, strict=True):
                    out.setdefault(i.first, f"{axis}_from")
                    out.setdefault(i.end, f"{axis}_until")
        return out

    def state(self, name: str) -> str:
        """A carried value."""
        taken = name in self.tensors or name in self.program.kernel.axes
        return self.name(("state", name), f"{name}_acc" if taken else name)

    def extent(self, dim: int) -> sx.Expr:
        """Values along a tile dimension, as an expression over the constexprs."""
        program = self.program
        if isinstance(program, PerThread) and dim == program.lane:
            (axis,) = program.dims[dim + 1]
            return sx.binary(self.block(axis), "//", EACH)
        if isinstance(program, PerThread) and dim == program.lane + 1:
            return sx.const(EACH)
        return sx.chain("*", [self.block(a) for a in self.program.dims[dim]])
