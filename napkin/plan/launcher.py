"""The function `run` of a kernel file that runs alone (`napkin.plan.standalone`).

`run` says in Python, for any sizes, what `napkin.lower.launch` works out for each call.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator, Sequence

from napkin.ir.listing import text as listed
from napkin.ir.names import underscored
from napkin.ir.node import Node, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.storage import packed_axis, storage_type
from napkin.ir.types import STORAGE
from napkin.ir.windows import Slide
from napkin.lower import syntax as sx
from napkin.lower.launch import Entry
from napkin.lower.spelling import GLUON_NAMES
from napkin.plan.call import LINE, RESERVED, Call, laid, tuple_of
from napkin.plan.plan import Plan
from napkin.run.recipe import Step

_IMPORTED = ("math", "torch", "triton", "tl", "hopper", "kernel", "TensorDescriptor", "_")


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
        self.taken = {*dir(builtins), *GLUON_NAMES, *kernels, *_IMPORTED, *RESERVED}
        self.function = self._fresh("run")
        self.inputs = dict(zip(self.diagram.input_names, self.diagram.inputs, strict=True))
        tensors = [*self.inputs, *self.diagram.scalars, *(t.name for t in self.recipe.stored)]
        self.names = {name: self._fresh(name) for name in dict.fromkeys(tensors)}
        self.sizes: dict[str, str] = {}
        self.entries = [self._chosen(s) for s in self.recipe.steps]
        of = {a.of: a.name for e in self.entries for a in e.arguments if isinstance(a.of, Node)}
        self.unspelt = {n: self._fresh(name) for n, name in of.items() if not _spelt(n)}

    def _fresh(self, name: str) -> str:
        own = underscored(name, self.taken)
        self.taken.add(own)
        return own

    def _chosen(self, step: Step) -> Entry:
        return (step.specialised if self.warpgroups else None) or step.entry

    def lines(self) -> list[str]:
        """The function."""
        body = [*self._doc(), *self._sizes()]
        body += dict.fromkeys(line for e in self.entries for line in self._whole(e))
        body += [line for t in self.recipe.stored for line in self._stored(t.name, t.axes, t.dtype)]
        body += [line for s in self.recipe.steps for line in ("", *self._launch(s))]
        results = self.recipe.results  # equal ones are one tensor, which a caller may change
        equal = [".clone()" * (t in results[:i]) for i, t in enumerate(results)]
        given = [self.names[t] + how for t, how in zip(results, equal, strict=True)]
        body.append(f"return {', '.join(given)}")
        return [*self._signature(), *(f"    {line}".rstrip() for line in body)]

    # --- what it is given -------------------------------------------------------------------

    def _signature(self) -> list[str]:
        given = [self.names[t] for t in self.inputs]
        scalars = [  # NaN stands for none
            self.names[s] + (f"={ast.unparse(sx.const(default))}" if default == default else "")
            for s, default in self.diagram.scalars.items()
        ]
        named = [*self.unspelt.values(), *scalars]
        return laid(f"def {self.function}(", [[*given, *(["*", *named] if named else [])]], "):")

    def _doc(self) -> list[str]:
        """What `run` computes, and of which tensors."""
        stored = {t.name: t for t in self.recipe.stored}
        made = [(t, stored[t].axes, stored[t].dtype) for t in self.recipe.results]
        given = [(t, n.axes, storage_type(n, self.dtype)) for t, n in self.inputs.items()]
        results, tensors = (", ".join(self._shown(*t) for t in each) for each in (made, given))
        text = f'"""{results} of {tensors}, on the current CUDA device.'
        text += "".join(f" {name} is {listed(n, {})}." for n, name in self.unspelt.items())
        wrapped = textwrap.wrap(f'{text}"""', LINE)  # tensors stay whole
        return [line.replace("\xa0", " ") for line in wrapped]

    def _shown(self, tensor: str, axes: Sequence[str], dtype: str) -> str:
        return f"{self.names[tensor]} [{' '.join(axes)}] {dtype}".replace(" ", "\xa0")

    def _sizes(self) -> Iterator[str]:
        """Lines that find the size of each axis, and hold the shapes of the inputs to them."""
        diagram, sizes, of = self.diagram, self.sizes, self.diagram.sized_as
        for t in sorted(self.inputs, key=lambda t: packed_axis(self.inputs[t]) != ""):
            yield from self._shape(self.names[t], self.inputs[t])
        given = {a: count for a, (count, _) in diagram.counted.items()}
        for a, size in [*given.items(), *diagram.sizes.items()]:
            if of(a) not in {of(s.out) for s in diagram.slides}:
                sizes.setdefault(of(a), str(size))
        for s in diagram.slides:
            yield from self._windows(s)
        sizes |= {a: sizes[of(a)] for a in diagram.axes}
        for new, old in self.recipe.same_size.items():
            sizes[new] = " * ".join(sizes[a] for a in old.split())
        sizes |= {a: str(number) for a, number in self.recipe.parts.items()}
        splits = [s for e in self.entries for s in e.splits]
        sizes |= {s.residue: str(s.step) for s in splits}
        for s in dict.fromkeys((*splits, *self.recipe.blocks)):
            sizes[s.place] = self._fresh(s.place)
            yield f"{sizes[s.place]} = triton.cdiv({sizes[s.axis]}, {s.step})"

    def _shape(self, t: str, n: Node) -> Iterator[str]:
        """Lines that take sizes from the shape of an input, and hold it to those known."""
        axes = [*map(self.diagram.sized_as, n.axes)]
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
            yield f"if {t}.shape != {tuple_of(own)}:"
            yield f'    raise ValueError(f"{t} is {{tuple({t}.shape)}}, not {{{tuple_of(own)}}}")'

    def _windows(self, s: Slide) -> Iterator[str]:
        """The line that counts the windows along an axis."""
        axis, out, tap = map(self.diagram.sized_as, (s.axis, s.out, s.tap))
        length, taps = self.sizes[axis], self.sizes[tap]
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
                yield f'    raise ValueError(f"tiles hold up to {tile} of {size}, not {{{size}}}")'

    def _stored(self, name: str, axes: Sequence[str], dtype: str) -> list[str]:
        """The line that makes a tensor which kernels write."""
        shape = tuple_of([self.sizes[a] for a in axes])
        first = next(iter(self.inputs), None)
        device = f"{self.names[first]}.device" if first else '"cuda"'
        options = f"dtype=torch.{STORAGE[dtype].torch}, device={device}"
        return [f"{self.names[name]} = torch.empty({shape}, {options})"]

    # --- the launches -----------------------------------------------------------------------

    def _launch(self, step: Step) -> list[str]:
        """Lines that launch one kernel."""
        fast = self.warpgroups and step.specialised is not None
        tensors = {theirs: self.names[ours] for theirs, ours in step.binding.items()}
        entry = self._chosen(step)
        how = [f"{name}={value}" for name, value in entry.settings.items()]
        call = Call(entry, tensors, self.sizes, self._constant, how, fast)
        zeros = [f"{self.names[t]}.zero_()" for t in step.added]
        return [*zeros, *call.lines()]

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


def _spelling(op: str) -> str | None:
    row = POINTWISE.get(op)
    if row is None or row.definition:  # what a user has listings print may be no Python
        return None
    return row.python or row.text


def _spelt(n: Node) -> bool:
    """Whether Python has every operator of an expression."""
    return all(m.op in {"number", "size", "scalar"} or _spelling(m.op) for m in postorder([n]))
