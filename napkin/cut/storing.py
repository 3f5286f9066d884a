"""What a call of `nk.derive` wants stored, held against what kernels can store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from napkin.cut.points import READ_AGAIN, is_pointwise, points_of
from napkin.cut.ways import Cut
from napkin.derive.prepare import Prepared
from napkin.errors import InputError, Refusal, check_known
from napkin.ir.node import Node, over, postorder
from napkin.ir.storage import own_type, packed_axis, unstorable
from napkin.ir.taking import own_axes
from napkin.ir.types import PACKED, STORED
from napkin.machine.machines import Machine
from napkin.target import FP8


def check_stored(ready: Prepared, machine: Machine) -> None:
    order = list(postorder(o.node for o in ready.outputs))
    for n in order:
        _check_packed(n, order)
        if own_type(n) == "fp8" and not machine.target.has_fp8:
            name, instead = ready.names.get(n, "a cast"), "cast to bf16"
            if n.op == "input":  # kernels read int8, and store none
                name = str(n.params[0])
                instead = f"store {name} in int8 with a scale, as in matmul_w8a8"
            raise Refusal(
                "storage fp8",
                f"{name} on {machine.name}",
                f"Triton compiles float8_e4m3fn from sm_{FP8} on, not for {machine.arch}",
                f"{instead}, or derive for h100",
            )
    for o in ready.outputs:
        if own_type(o.node) in PACKED:
            raise InputError(
                f"output {o.name} would be stored in {own_type(o.node)}, which kernels only read; "
                "write nk.cast(..., 'int32')"
            )
        own = unstorable(o.node)
        if own:
            store, instead = (
                ((*STORED, "fp8"), "fp32") if o.node.kind == "real" else (("int32",), "int32")
            )
            raise InputError(
                f"output {o.name} is cast to {own}: kernels store {', '.join(store)}; "
                f"write nk.cast(..., {instead!r})"
            )


def _check_packed(n: Node, order: Sequence[Node]) -> None:
    """Refuse what reads one value of a byte without the other."""
    axis = packed_axis(n)
    if not axis:
        return
    if any(m.op == "steps" and n in m.args and over(m) == (axis,) for m in order):
        name = n.params[0]
        raise Refusal(
            f"storage {own_type(n)}",
            f"{name} [{' '.join(own_axes(n))}]",
            f"two values share a byte along {axis}, along which a scan takes them one by one",
            f"scan nk.cast({name}, 'int32'), or put another axis of {name} last",
        )
    keys = {a for k in order if k.op == "keys" for a in k.axes}
    why = "along which a key set says where it is read" if axis in keys else ""
    if n.args and axis.startswith("?"):
        why = "along which a position says where it is read"
    elif not why and any(axis in a.axes for a in n.args):
        why = "and the positions where it is read differ along that"
    if why:
        last, instead = own_axes(n)[-1], own_type(n).replace("4", "8")
        raise Refusal(
            f"storage {own_type(n)}",
            f"{n.params[0]} [{' '.join(own_axes(n))}]",
            f"two values share a byte along {last}, {why}",
            f"put another axis of {n.params[0]} last, or store it in {instead}",
        )


def materialised(ready: Prepared, names: Sequence[str], listed: Collection[str] = ()) -> list[Node]:
    """The arrays of these names, for which kernels may end; `listed` are those of the diagram."""
    if isinstance(names, str):
        raise InputError(f"materialise={names!r} is one text; write a list, [{names!r}]")
    if not isinstance(names, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"materialise={names!r} is no list of names; write one, as in ['S']")
    others = ", ".join(t for m, t in ready.names.items() if not _never_stored(m))
    found: list[Node] = []
    for name in names:
        if name in listed and name not in ready.names.values():
            why = "kernels read it where its values lie, or compute it in another form"
        else:
            found.append(_named(ready, name))
            why = _never_stored(found[-1])
        if why:
            cure = f"name a computed one ({others})" if others else "leave it out"
            raise Refusal("materialise", name, why, cure)
    return found


def _named(ready: Prepared, name: str) -> Node:
    order = postorder(o.node for o in ready.outputs)
    arrays = {ready.names[n]: n for n in order if n in ready.names}
    check_known(name, arrays, f"materialise {name!r}: no such array")
    return arrays[name]


def _never_stored(n: Node) -> str:
    """Why no kernel stores an array; "" where one may."""
    if n.constant:
        return "it is known before any array is read"
    if n.op in {*READ_AGAIN, "input", "keys"}:
        return "each kernel reads it where its values lie, and computes nothing of it"
    if is_pointwise(n) and n.kind != "real":
        return "positions and tests are computed where they are used"
    return ""


def check_materialised(
    ready: Prepared, found: Cut, at: Sequence[Node], sizes: Mapping[str, int]
) -> None:
    """Refuse arrays for which no kernel stores anything: they would else be passed over without a
    word. What is computed of the same points may be stored in an array's place."""
    points = points_of(ready.outputs, sizes) | {*at}
    stored = {o.node for o in (*found.materialised.values(), *ready.outputs)}
    cuts = [_under(n, points) for n in stored]
    for n in at:
        if n not in stored and _under(n, points) not in cuts:
            raise Refusal(
                "materialise",
                ready.names[n],
                "each kernel that reads it computes it",
                "leave it out",
            )


def _under(n: Node, points: Set[Node]) -> frozenset[Node]:
    """The points that an array is computed of."""
    return frozenset(postorder([n])) & points
