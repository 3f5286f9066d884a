"""The function `run` of a kernel file that runs alone (`napkin.plan.standalone`).

`run` says in Python, for any sizes, what `napkin.lower.launch` works out for each call.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from napkin.diagram.listing import text as listed
from napkin.diagram.node import Node, postorder
from napkin.diagram.operators import POINTWISE
from napkin.diagram.storage import packed_axis, storage_type
from napkin.diagram.types import STORAGE
from napkin.diagram.windows import Slide
from napkin.lower import syntax as sx
from napkin.lower.launch import SECTION_BYTES, WARPS, Argument, Entry, in_box
from napkin.lower.printer import GLUON, WIDTH
from napkin.plan.plan import Plan
from napkin.plan.recipe import Step

_RESERVED = {
    "math", "torch", "triton", "tl", "hopper", "kernel", "TensorDescriptor", "_",
    "GRID", "WIDE", "DESCRIPTORS", "SECTION", "SECTIONS", "GROUPS", "STREAMED",
}  # fmt: skip

_SPELT = {
    "maximum": "max({0}, {1})", "minimum": "min({0}, {1})", "abs": "abs({0})",
    "exp": "math.exp({0})", "exp2": "math.exp2({0})", "log": "math.log({0})",
    "sqrt": "math.sqrt({0})", "rsqrt": "1 / math.sqrt({0})", "tanh": "math.tanh({0})",
    "sin": "math.sin({0})", "cos": "math.cos({0})", "sigmoid": "1 / (1 + math.exp(-{0}))",
    "erf": "math.erf({0})", "ndtr": "math.erfc(-{0} / math.sqrt(2)) / 2",
    "where": "{1} if {0} else {2}", "cast": "{0}",
}  # fmt: skip
"""Operators on sizes and scalars in Python, where listings print calls."""


class Launcher:
    """What `run` launches, and what it calls tensors and sizes.

    Attributes:
        names: what tensors and scalars of the plan are called.
        sizes: the size of each axis, as text.
        unspelt: constants of kernels with an operator that Python has not, and what `run` calls
            them, since it is given them.
    """

    def __init__(self, plan: Plan, warpgroups: bool) -> None:
        self.diagram, self.recipe, self.dtype = plan.diagram, plan.recipe, plan.dtype
        self.warpgroups = warpgroups
        kernels = re.findall(r"^def (\w+)\(", plan.source + plan.warpgroups, flags=re.MULTILINE)
        self.taken = {*dir(builtins), *GLUON, *kernels, *_RESERVED}
        self.function = self._fresh("run")
        self.inputs = {str(n.params[0]): n for n in self.diagram.inputs}
        tensors = [*self.inputs, *self.diagram.scalars, *(t.name for t in self.recipe.stored)]
        self.names = {name: self._fresh(name) for name in dict.fromkeys(tensors)}
        self.sizes: dict[str, str] = {}
        self.entries = [self._chosen(s) for s in self.recipe.steps]
        of = {a.of: a.name for e in self.entries for a in e.arguments if isinstance(a.of, Node)}
        self.unspelt = {n: self._fresh(name) for n, name in of.items() if not _spelt(n)}

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _chosen(self, step: Step) -> Entry:
        return (step.band if self.warpgroups else None) or step.entry

    def lines(self) -> list[str]:
        """The function."""
        body = [*self._doc(), *self._sizes()]
        body += dict.fromkeys(line for e in self.entries for line in self._whole(e))
        body += [line for t in self.recipe.stored for line in self._stored(t.name, t.axes, t.dtype)]
        body += [line for s in self.recipe.steps for line in ("", *self._launch(s))]
        body.append(f"return {', '.join(self.names[t] for t in self.recipe.results)}")
        return [*self._signature(), *(f"    {line}".rstrip() for line in body)]

    # --- what it is given -------------------------------------------------------------------

    def _signature(self) -> list[str]:
        given = [self.names[t] for t in self.inputs]
        scalars = [
            self.names[s] + (f"={default!r}" if default == default else "")
            for s, default in self.diagram.scalars.items()
        ]
        named = [*self.unspelt.values(), *scalars]
        return _laid(f"def {self.function}(", [[*given, *(["*", *named] if named else [])]], "):")

    def _doc(self) -> list[str]:
        """What `run` computes, and of which tensors."""
        stored = {t.name: t for t in self.recipe.stored}
        made = [(t, stored[t].axes, stored[t].dtype) for t in self.recipe.results]
        given = [(t, n.axes, storage_type(n, self.dtype)) for t, n in self.inputs.items()]
        results, tensors = (", ".join(self._shown(*t) for t in each) for each in (made, given))
        text = f'"""{results} of {tensors}, on the current CUDA device.'
        text += "".join(f" {name} is {listed(n, {})}." for n, name in self.unspelt.items())
        wrapped = textwrap.wrap(f'{text}"""', WIDTH - 5)  # tensors stay whole
        return [line.replace("\xa0", " ") for line in wrapped]

    def _shown(self, tensor: str, axes: Sequence[str], dtype: str) -> str:
        return f"{self.names[tensor]} [{' '.join(axes)}] {dtype}".replace(" ", "\xa0")

    def _sizes(self) -> Iterator[str]:
        """Lines that find the size of each axis, and hold the shapes of the inputs to them."""
        diagram, sizes = self.diagram, self.sizes
        for t in sorted(self.inputs, key=lambda t: packed_axis(self.inputs[t]) != ""):
            yield from self._shape(self.names[t], self.inputs[t])
        given = {a: str(count) for a, (count, _) in diagram.slots.items()}
        given |= {s.tap: str(s.span.window) for s in diagram.slides if s.span.window}
        for a, size in [*given.items(), *diagram.sizes.items()]:
            if self._root(a) not in {self._root(s.out) for s in diagram.slides}:
                sizes.setdefault(self._root(a), str(size))
        for s in diagram.slides:
            yield from self._windows(s)
        sizes |= {a: sizes[self._root(a)] for a in diagram.axes}
        sizes |= {new: sizes[old] for new, old in self.recipe.same_size.items()}
        sizes |= {a: str(number) for a, number in self.recipe.parts.items()}
        for s in dict.fromkeys(s for e in self.entries for s in e.splits):
            sizes[s.place], sizes[s.residue] = self._fresh(s.place), str(s.step)
            yield f"{sizes[s.place]} = triton.cdiv({sizes[s.axis]}, {s.step})"

    def _root(self, axis: str) -> str:
        return self.diagram.same_size.get(axis, axis)

    def _shape(self, t: str, n: Node) -> Iterator[str]:
        """Lines that take sizes from the shape of an input, and hold it to those known."""
        axes = [self._root(a) for a in n.axes]
        new = [a for a in dict.fromkeys(axes) if a not in self.sizes]
        self.sizes |= {a: self._fresh(a) for a in new}
        if new:
            targets = [self.sizes[a] if a in new else "_" for a in axes]
            yield f"{', '.join(targets)}{',' * (len(axes) == 1)} = {t}.shape"
        own = [self.sizes[a] for a in axes]
        if packed_axis(n):
            yield from [f"{own[-1]} *= 2"] * (axes[-1] in new)
            own[-1] += " // 2"
        if len(new) < len(axes) or not axes:
            yield f"if {t}.shape != {_tuple(own)}:"
            yield f'    raise ValueError(f"{t} is {{tuple({t}.shape)}}, not {{{_tuple(own)}}}")'

    def _windows(self, s: Slide) -> Iterator[str]:
        """The line that counts the windows along an axis."""
        out, length, taps = self._root(s.out), *(self.sizes[self._root(a)] for a in (s.axis, s.tap))
        if out not in self.sizes:
            self.sizes[out] = self._fresh(out)
            taps = f"{s.dilation} * {taps}" if s.dilation > 1 else taps
            beyond = s.span.past - s.offset + s.dilation - 1 + s.stride
            count = f"{length} - {taps} + {beyond}"
            count = f"({count}) // {s.stride}" if s.stride > 1 else count
            yield f"{self.sizes[out]} = max({count}, 0)"

    def _whole(self, entry: Entry) -> Iterator[str]:
        """Lines that refuse an axis that is longer than the tile that holds it."""
        for a in entry.whole:
            size, tile = self.sizes[a], entry.tiles[a]
            if not size.isdigit():
                yield f"if {size} > {tile}:"
                yield f'    raise ValueError(f"tiles hold up to {tile} of {a}, not {{{size}}}")'

    def _stored(self, name: str, axes: Sequence[str], dtype: str) -> list[str]:
        """The line that makes a tensor which kernels write."""
        shape = _tuple([self.sizes[a] for a in axes])
        first = next(iter(self.inputs), None)
        device = f"{self.names[first]}.device" if first else '"cuda"'
        options = f"dtype=torch.{STORAGE[dtype].torch}, device={device}"
        return [f"{self.names[name]} = torch.empty({shape}, {options})"]

    # --- the launches -----------------------------------------------------------------------

    def _launch(self, step: Step) -> Iterator[str]:
        """Lines that launch one kernel."""
        entry, fast = self._chosen(step), self.warpgroups and step.band is not None
        tensor = {theirs: self.names[ours] for theirs, ours in step.binding.items()}
        strides = {t: self._strides(entry, t, tensor[t]) for t in entry.axes_of}
        reach = [
            f"_reach({_tuple([self.sizes[a] for a in axes])}, {_whole(strides[t], tensor[t])}, "
            f"{_tuple([str(entry.tiles.get(a, 1)) for a in axes])})"
            for t, axes in entry.axes_of.items()
            if axes
        ]
        if len(reach) > 1:
            yield from _laid("WIDE = max(", [[r] for r in reach], ") >= 2**31")
        else:
            yield f"WIDE = {reach[0]} >= 2**31" if reach else "WIDE = False"
        described = ", ".join(tensor[t] for t in entry.boxes)
        if fast:
            yield f"if WIDE or not _described({described}):"
            yield '    raise ValueError("descriptors do not serve these tensors; use kernel.py")'
        elif entry.boxes:
            yield f"DESCRIPTORS = not WIDE and _described({described})"
        groups: list[list[str]] = []
        for kind, arguments in itertools.groupby(entry.arguments, lambda a: a.kind):
            own = list(arguments)
            if kind == "section":
                yield from self._section(entry, own[0])
            if kind == "tensor":
                groups.append([self._tensor(t, entry, tensor, fast) for t in map(_tensor_of, own)])
            elif kind == "stride":
                groups.append(_passed(own, strides, tensor))
            else:
                groups.append([self._argument(a, entry, strides, tensor) for a in own])
        settings = [f"num_warps={step.warps}", f"num_stages={step.stages}"]
        groups.append([f"num_warps={WARPS}"] if fast else settings)
        yield f"GRID = ({self._grid(entry)},)"
        yield from _laid(f"{entry.name}[GRID](", groups, ")")

    def _strides(self, entry: Entry, tensor: str, called: str) -> dict[str, str]:
        """A tensor's strides by axis, as text; see `napkin.lower.launch`."""
        splits = {s.place: s for s in entry.splits}
        own = entry.axes_of[tensor]
        residues = {splits[a].residue for a in own if a in splits}
        out = {a: "" for a in own}
        for i, a in enumerate(a for a in own if a not in residues):
            out[a] = one = f"{called}.stride({i})"
            if a in splits:
                out[a] = f"{splits[a].step} * {one}"
                known = out[splits[a].residue]
                out[splits[a].residue] = f"{known} + {one}" if known else one
        return out

    def _tensor(self, t: str, entry: Entry, tensor: Mapping[str, str], fast: bool) -> str:
        """A tensor, or its descriptor."""
        axes, called = entry.boxes.get(t), tensor[t]
        if axes is None:
            return called
        seen = in_box(axes, entry.tiles)
        order = ", ".join(str(axes.index(a)) for a in seen)
        given = called if seen == tuple(axes) else f"{called}.permute({order})"
        sizes = [entry.tiles[a] for a in seen]
        if fast:
            return f"_box({given}, {sizes})"
        return f"TensorDescriptor.from_tensor({given}, {sizes}) if DESCRIPTORS else {called}"

    def _argument(
        self, a: Argument, entry: Entry, strides: Mapping[str, Mapping[str, str]],
        tensor: Mapping[str, str],
    ) -> str:  # fmt: skip
        """An argument that is no tensor and no stride."""
        if isinstance(a.of, Node):
            return self._constant(a.of)
        if a.kind in {"wide", "descriptors"}:
            return f"{a.name}={'WIDE' if a.kind == 'wide' else 'DESCRIPTORS'}"
        if a.kind == "section":
            return "SECTION"
        axis, *along = a.of
        if a.kind == "size":
            return self.sizes[axis]
        if a.kind == "block":
            return f"{a.name}={entry.tiles[axis]}"
        if a.kind == "even":
            return f"{a.name}={self._even(axis, entry)}"
        rows = ", ".join([self.sizes[axis], *(_whole(strides[t], tensor[t]) for t in along)])
        return f"{a.name}=_step({rows})"

    def _even(self, axis: str, entry: Entry) -> str:
        """Whether tiles cover an axis without a rest, as text."""
        size, tile, whole = self.sizes[axis], entry.tiles[axis], axis in entry.whole
        span, split = entry.span(axis), entry.ragged.get(axis)
        if size.isdigit():
            return str(int(size) == tile if whole else int(size) % span == 0)
        even = f"{size} == {tile}" if whole else f"{size} % {span} == 0"
        return f"{self.sizes[split.axis]} % {split.step} == 0 and {even}" if split else even

    def _constant(self, n: Node) -> str:
        """An expression of sizes and scalars in Python."""
        if n in self.unspelt:
            return self.unspelt[n]
        done: dict[Node, sx.Expr] = {}
        for m in postorder([n]):
            if m.op == "number":
                done[m] = ast.Constant(m.params[0])  # type: ignore[arg-type]
            elif m.op in {"size", "scalar"}:
                known = self.sizes if m.op == "size" else self.names
                done[m] = sx.name(known[str(m.params[0])])
            else:
                done[m] = sx.pattern(_spelling(m.op) or "", [done[a] for a in m.args])
        text = ast.unparse(done[n])
        return f"float({text})" if n.op == "scalar" and n.kind == "real" else text

    def _groups(self, axis: str, tile: int) -> str:
        return f"triton.cdiv({self.sizes[axis]}, {tile})" if tile > 1 else self.sizes[axis]

    def _grid(self, entry: Entry) -> str:
        """How many program instances run."""
        groups = " * ".join(self._groups(a, entry.span(a)) for a in entry.group) or "1"
        return f"min({groups}, {entry.persistent})" if entry.persistent else groups

    def _section(self, entry: Entry, a: Argument) -> Iterator[str]:
        """Lines that find how many groups share L2 with what they stream."""
        assert isinstance(a.of, tuple)
        others = [b for b in entry.group if b not in a.of]
        streamed = [" * ".join(self.sizes[b] for b in axes) or "1" for axes in entry.streamed]
        yield f"GROUPS = {' * '.join(self._groups(b, entry.tiles[b]) for b in others)}"
        yield f"STREAMED = {entry.described or 2} * ({' + '.join(streamed)})"
        share = f"triton.cdiv(STREAMED, {SECTION_BYTES >> 20} * 2**20)"
        yield f"SECTIONS = max(1, min(GROUPS, {share}))"
        yield "SECTION = max(1, triton.cdiv(GROUPS, SECTIONS))"


def _spelling(op: str) -> str | None:
    return _SPELT.get(op) or (POINTWISE[op].text if op in POINTWISE else None)


def _spelt(n: Node) -> bool:
    """Whether Python has every operator of an expression."""
    return all(m.op in {"number", "size", "scalar"} or _spelling(m.op) for m in postorder([n]))


def _tensor_of(a: Argument) -> str:
    assert isinstance(a.of, tuple)
    return a.of[0]


def _whole(strides: Mapping[str, str], called: str) -> str:
    """All strides of a tensor, as text."""
    plain = list(strides.values()) == [f"{called}.stride({i})" for i in range(len(strides))]
    return f"{called}.stride()" if plain else _tuple(list(strides.values()))


def _passed(
    arguments: Sequence[Argument], strides: Mapping[str, Mapping[str, str]],
    tensor: Mapping[str, str],
) -> list[str]:  # fmt: skip
    """Strides as they are passed: those of a tensor together where all are."""
    out: list[str] = []
    for t, each in itertools.groupby(arguments, _tensor_of):
        axes = [str(a.of[1]) for a in each]  # type: ignore[index]
        whole = _whole(strides[t], tensor[t])
        if axes == list(strides[t]) and whole.endswith("()"):
            out.append(f"*{whole}")
        else:
            out += [strides[t][a] for a in axes]
    return out


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _laid(head: str, groups: Sequence[Sequence[str]], tail: str) -> list[str]:
    """A call on one line, or with the arguments of each group on lines of their own."""
    one = head + ", ".join(a for group in groups for a in group) + tail
    if len(one) <= WIDTH - 5:
        return [one]
    lines = [head]
    for group in filter(None, groups):
        line = "   "
        for a in group:
            if len(line) + len(a) + 2 > WIDTH - 5 and line.strip():
                lines.append(line)
                line = "   "
            if len(a) > WIDTH - 12:
                a = a.replace(" if ", f"\n{' ' * 8}if ", 1)
            line += f" {a},"
        lines.append(line)
    return [*lines, tail]
