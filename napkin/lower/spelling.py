"""The languages of kernels, and how each spells a function, a type and a reduction.

Statements ask for all three by their names in Triton. The texts of operators are templates, in
which `tl` stands for the language's module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from napkin.errors import Refusal
from napkin.ir.operators.record import FUNCTIONS, jitted
from napkin.lower import syntax as sx
from napkin.lower.syntax import Expr, Operand

FUNCTIONS.update({
    "signed_halves": jitted(
        "signed_halves",
        "The two numbers from -8 to 7 in each byte, the low half first, along a new last axis",
        "a = a.to(tl.int8, bitcast=True)",
        "return tl.join((a << 4) >> 4, a >> 4)",
        arguments="a",
    ),
    "halves": jitted(
        "halves",
        "The two numbers from 0 to 15 in each byte, the low half first, along a new last axis",
        "a = tl.join(a & 15, a >> 4)",
        "return a.to(tl.int8, bitcast=True)",
        arguments="a",
    ),
    "left_out": jitted(
        "left_out",
        "The positions of a chunk that lie outside first..end - 1, a bit for each",
        "low = tl.minimum(tl.maximum(first - start, 0), BLOCK).to(tl.int32)",
        "high = tl.minimum(tl.maximum(end - start, 0), BLOCK).to(tl.int32)",
        "return (1 << low) - 1 | (1 << BLOCK) - (1 << high)",
        arguments="first, end, start, BLOCK: tl.constexpr",
    ),
})  # fmt: skip
"""What lowering calls by itself, beside what operators call."""


@dataclass(frozen=True)
class Language:
    """A language of kernels.

    Attributes:
        name: the module whose `jit` makes a function of it.
        module: what kernels call its functions' module.
        has: what that has of Triton's; None for all.
        otherwise: what it spells otherwise.
    """

    name: str
    module: str
    has: frozenset[str] | None = None
    otherwise: Mapping[str, str] = field(default_factory=dict[str, str])

    def spelt(self, word: str) -> str:
        """A function or a type of Triton's.

        Raises:
            Refusal: the language lacks it.
        """
        if word in self.otherwise:
            return self.otherwise[word]
        if self.has is not None and word not in self.has:
            reason, nearest = f"{self.name.title()} has no {word}", "leave the groups by themselves"
            raise Refusal("lower to warpgroups", "write", reason, nearest)
        return f"{self.module}.{word}"

    def word(self, word: str) -> Expr:
        """The same as a name."""
        return sx.name(self.spelt(word))

    def __call__(self, function: str, *args: Operand, **keywords: Operand) -> Expr:
        """A call of a function of the language."""
        return sx.call(self.spelt(function), *args, **keywords)

    def literal(self, value: object) -> Expr:
        """A literal; -0.0 by its bits, since Triton 3.6 takes any zero that is written out for
        0.0."""
        if isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0:
            return self("cast", -(2**31), self.word("float32"), bitcast=True)
        return sx.const(value)

    def filled(self, text: str, values: Sequence[Expr]) -> Expr:
        """The expression `text` of an operator with `{0}`, `{1}`, ... filled in."""
        return sx.pattern(text, values, self.word)

    def functions(self, names: Iterable[str]) -> list[str]:
        """Those of these names that are functions of kernel files, and the functions that they
        call, as texts in alphabetical order."""
        found: dict[str, str] = {}
        waiting = list(FUNCTIONS.keys() & names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = self._function(name)
                waiting += FUNCTIONS.keys() & set(re.findall(r"(?<![\w.])\w+(?=\()", found[name]))
        return [found[name] for name in sorted(found)]

    def _function(self, name: str) -> str:
        record = FUNCTIONS[name]
        text = record.triton if self is TRITON else record.gluon or record.triton
        text = re.sub(r"\btl\.(\w+)", lambda found: self.spelt(found[1]), text)
        return text.replace("@triton.jit", f"@{self.name}.jit")


TRITON = Language("triton", "tl")

GLUON = Language(
    "gluon",
    "gl",
    frozenset({
        "abs", "arange", "cast", "cdiv", "ceil", "constexpr", "convert_layout", "cos", "exp",
        "exp2", "floor", "fma", "full", "load", "log", "log2", "max", "maximum", "min", "minimum",
        "multiple_of", "num_programs", "program_id", "reduce", "rsqrt", "sin", "sqrt", "sqrt_rn",
        "store", "sum", "to_tensor", "where", "zeros", "static_range", "bfloat16", "float16",
        "float32", "float64", "int1", "int8", "int32", "int64", "BlockedLayout", "DotOperandLayout",
        "NVMMADistributedLayout", "NVMMASharedLayout", "SliceLayout", "SwizzledSharedLayout",
        "allocate_shared_memory", "warp_specialize",
    }),
    {"PropagateNan": "tl.PropagateNan"}
    | {name: name for name, f in FUNCTIONS.items() if not f.triton},
)  # fmt: skip
"""The language of warp-specialised kernels: what it has of Triton's, and what is its own."""

GLUON_NAMES = {
    "gl", "gluon", "tma", "mbarrier", "async_add", "async_load", "async_store",
    "fence_async_shared", "warpgroup_mma", "warpgroup_mma_wait",
}  # fmt: skip
"""Names in a file of such kernels (`napkin.lower.warpgroups.gluon`)."""
