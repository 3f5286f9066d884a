"""A program as a napkin diagram, and as the Python that a person would write for it.

The diagram is made by running that very text, so what is printed is what was tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from programs import (
    FORMS,
    OWN,
    OWN_REDUCE,
    RANKED,
    REDUCE,
    UNARY,
    Input,
    Keys,
    Program,
    Ref,
    Step,
    moved,
    shapes,
    union,
)

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==",
    "not_equal": "!=", "and": "&", "or": "|",
}  # fmt: skip
ALONE = {
    *(UNARY - {"not"}),
    "add",
    "mul",
    "sum",
    "max",
    "min",
    "mean",
    "logsumexp",
    "softmax",
    "cumsum",
}
"""Operators that may stand behind `>>` alone."""

PREFIX = {"neg": "-", "not": "~"}

LONGEST = 1000
"""Letters of what is written without a name, at most."""


def text(program: Program) -> str:
    """The Python of a program."""
    parts = apart(program)
    if parts is not None:
        first, last = parts
        chain = f"{program.name} = {first.name} >> {last.name}"
        return f"{text(first)}\n{text(last)}\n{chain}\n"
    names = value_names(program)
    scalars = [s for s in program.steps if s.op == "scalar"]
    given = names[: len(program.inputs)]
    given += [f"{s.option['name']}={s.option['value']!r}" for s in scalars]
    lines = [*imports(program)]
    inner = called(program)
    if inner is not None:
        lines.append(text(inner[0]))
    lines += [f"@nk.diagram({signature(program)!r}, sizes={base_sizes(program)!r})"]
    lines.append(f"def {program.name}({', '.join(given)}):")
    inside = nested(program) if program.nested else {}
    if inner is not None:
        lines.append(f"    {', '.join(names[i] for i in inner[1])} = {_call(inner[0])}")
    for i, step in enumerate(program.steps, len(program.inputs)):
        if step.op == "scalar" or (inner is not None and i < len(program.inputs) + program.called):
            continue
        made = expression(step, names)
        if len(made) < inside.get(i, 0):
            names[i] = f"({made})"
        else:
            lines.append(f"    {names[i]} = {made}")
    lines.append(f"    return {', '.join(names[r.at] for r, _ in program.outputs)}")
    own = {i.name: i.storage for i in program.inputs if program.stored and i.storage}
    if own:
        lines += ["", f"{program.name} = {program.name}.stored(**{own!r})"]
    new, into = program.weave
    if new:
        sizes = {a: max(1, program.sizes[a]) for a in new}
        woven = f"weave({' '.join(new)!r}, into={' '.join(into)!r}).with_sizes(**{sizes!r})"
        lines += ["", f"{program.name} = {program.name}.{woven}"]
    return "\n".join(lines) + "\n"


def nested(program: Program) -> dict[int, int]:
    """The places of steps that are read once or twice, and are no results, and how long what stands
    there may be: it is written as often as it is read."""
    read = Counter(r.at for s in program.steps for r in s.refs)
    named = {*range(len(program.inputs)), *(r.at for r, _ in program.outputs)}
    return {i: LONGEST // n**3 for i, n in read.items() if n < 3 and i not in named}


def imports(program: Program) -> list[str]:
    """What a program takes from what a user adds (`added`)."""
    sets = [k.pattern for s in program.steps for keys in s.keys if keys for k in keys.each()]
    names = sorted(OWN & {*(s.op for s in program.steps), *sets})
    ruled = [f"# with added.in_force({program.rules})"] if program.rules else []
    return [*([f"from added import {', '.join(names)}"] if names else []), *ruled]


def apart(program: Program) -> tuple[Program, Program] | None:
    """A program without its last step, and that step as a program; None where it is not to be
    taken apart, or reads more than one array of numbers."""
    if not program.chained or program.weave[0] or len(program.outputs) > 1 or not program.steps:
        return None
    ((result, axes),), step = program.outputs, program.steps[-1]
    alone = result.at == len(program.inputs) + len(program.steps) - 1
    if not alone or len(step.refs) != 1 or step.keys or step.op not in ALONE:
        return None
    (ref,) = step.refs
    given = shapes(program)[ref.at]
    if given.kind != "real" or ref.at < len(program.inputs) or not given.axes:
        return None
    sizes = {a: program.sizes[a] for a in given.axes}
    first = replace(program, steps=program.steps[:-1], outputs=((ref, given.axes),), chained=False)
    last = Program(
        (Input("given", given.axes),), (moved(step, {ref.at: 0}),), ((Ref(1), axes),), sizes,
        name="last",
    )  # fmt: skip
    return first, last


def called(program: Program) -> tuple[Program, list[int]] | None:
    """The first steps of a program as one that it calls, and the places of the values that this
    gives; None where there is none, or its inputs would not say how long its axes are."""
    n, m = len(program.inputs), program.called
    first, later = program.steps[:m], program.steps[m:]
    if not first or program.weave[0] or any(s.op == "scalar" for s in first):
        return None
    read = {r.at for s in later for r in s.refs} | {r.at for r, _ in program.outputs}
    given = [i for i in range(n, n + len(first)) if i in read]
    known = shapes(program)
    results = tuple((Ref(i), known[i].axes) for i in given)
    name = f"{program.name}_first"
    inner = replace(program, steps=first, outputs=results, chained=False, called=0, stored=False,
                    nested=False, name=name)  # fmt: skip
    inner = inner.used()
    said = set(union(*(i.axes for i in inner.inputs)))
    windows = all("window" in s.option for s in inner.steps if s.op == "slide")
    named = {a for s in inner.steps if s.op in {"size", "index", "uniform"} for a in s.over[0]}
    named |= {
        a for s in inner.steps for keys in s.keys if keys for k in keys.each() for a in k.queries
    }
    if not given or not inner.inputs or not windows or not named <= said:
        return None
    own = {a: k for a, k in program.sizes.items() if a in axes_of(inner)}
    return replace(inner, sizes=own), given


def _call(inner: Program) -> str:
    return f"{inner.name}({', '.join(i.name for i in inner.inputs)})"


def diagram(program: Program):
    """The diagram of a program."""
    import napkin as nk

    space = {"nk": nk, "inf": float("inf")}
    exec(compile(text(program), f"<{program.name}>", "exec"), space)
    return space[program.name]


def value_names(program: Program) -> list[str]:
    """What the text calls each value."""
    own = [s.option["name"] if s.op == "scalar" else "" for s in program.steps]
    return [*(i.name for i in program.inputs), *(n or f"t{k}" for k, n in enumerate(own))]


def signature(program: Program) -> str:
    """The signature of the diagram, before it is weaved."""
    found, (new, into) = shapes(program), program.weave
    left = [
        _shape(tuple(a for a in i.axes if not (new and i.name in into and a in new)),
               _type(i, program.stored))
        for i in program.inputs
    ]  # fmt: skip
    right = [_shape(tuple(a for a in axes if a not in new), "") for _, axes in program.outputs]
    assert all(set(found[r.at].axes) | set(new) == set(axes) for r, axes in program.outputs)
    return f"{', '.join(left)} -> {', '.join(right)}"


def _type(given: Input, later: bool) -> str:
    """What a signature says of the type of an input, whose storage may be said later."""
    if given.storage and not later:
        return given.storage
    return "" if given.kind == "real" else given.kind


def _shape(axes: Sequence[str], what: str) -> str:
    return (" ".join(axes) or "()") + (f":{what}" if what else "")


def base_sizes(program: Program) -> dict[str, int]:
    """The sizes of the axes before it is weaved, none below 1."""
    return {a: max(1, n) for a, n in program.sizes.items() if a not in program.weave[0]}


def expression(step: Step, names: Sequence[str]) -> str:
    """The text of a step."""
    args = [names[a.at] if isinstance(a, Ref) else _number(a) for a in step.args]
    op, option = step.op, step.option
    gone = " ".join(step.over[0]) if step.over else ""
    if op in INFIX:
        return f"{args[0]} {INFIX[op]} {args[1]}"
    if op in PREFIX:
        return f"{PREFIX[op]}{args[0]}"
    if op in {"size", "index"}:
        return f"nk.{op}({gone!r})"
    if op in _CALLS:
        return _CALLS[op](args, gone, option, step, names)
    return f"{_named_as(op)}({', '.join(args)})"


def _named_as(op: str) -> str:
    """What an operator, or a pattern of keys, is called."""
    return op if op in OWN else f"nk.{op}"


def _number(value: float | int | bool) -> str:
    return repr(value) if value == value else 'float("nan")'


def _keys(step: Step, names: Sequence[str]) -> str:
    return f", keys={key_set(step.keys[0], names)}" if step.keys and step.keys[0] else ""


def _named(option: dict[str, object], leave: Sequence[str] = ()) -> str:
    return "".join(f", {k}={v!r}" for k, v in option.items() if k not in leave)


def _joint(args: list[str], gone: str, option: dict[str, object], step: Step, names) -> str:
    over = [" ".join(o) for o in step.over]
    sets = f", keys={_list(key_set(k, names) if k else 'None' for k in step.keys)}"
    sets = sets if any(step.keys) else ""
    if step.op == "softmax":
        return f"nk.softmax([{', '.join(args)}], over={over!r}{sets})[{option['which']}]"
    return f"nk.reduce([{', '.join(args)}], 'logsumexp', over={over!r}{sets})"


def _list(parts) -> str:
    return f"[{', '.join(parts)}]"


def _softmax(args, gone, option, step, names) -> str:
    if len(args) > 1:
        return _joint(args, gone, option, step, names)
    return f"nk.softmax({args[0]}, over={gone!r}{_keys(step, names)})"


def _reduce(args, gone, option, step, names) -> str:
    if len(args) > 1:
        return _joint(args, gone, option, step, names)
    return f"nk.reduce({args[0]}, {step.op!r}, over={gone!r}{_keys(step, names)})"


def _take(args, gone, option, step, names) -> str:
    places = ", ".join(f"{a}={p}" for a, p in zip(step.over[0], args[1:], strict=True))
    return f"nk.take({args[0]}, {places})"


def _slide(args, gone, option, step, names) -> str:
    into = " ".join(option["into"])
    return f"nk.slide({args[0]}, over={gone!r}, into={into!r}{_named(option, ['into'])})"


def _scan(args, gone, option, step, names) -> str:
    form, within = FORMS[option["form"]], option.get("within", "")
    n = form.states
    body = form.text.format(*args[n:], within=within, product=option.get("product", ""))
    axes = option.get("axes", within)
    axes = f", axes={axes!r}" if axes else ""
    starts = f"({', '.join(args[:n])})" if n > 1 else args[0]
    found = f"nk.scan(lambda {', '.join('hcg'[:n])}: {body}, {starts}, along={gone!r}{axes})"
    return f"{found}[{option['which']}]" if n > 1 else found


def _ranked(args, gone, option, step, names) -> str:
    k = f", {option['k']}" if option else ""
    found = f"nk.{step.op}({args[0]}{k}, over={gone!r}{_keys(step, names)})"
    return f"{found}[{option['what'] == 'places':d}][{option['which']}]" if option else found


def _compress(args, gone, option, step, names) -> str:
    keys, into = key_set(step.keys[0], names), " ".join(option["into"])
    return f"nk.compress({args[0]}, {keys}, into={into!r}{_named(option, ['into'])})"


def _spread(args, gone, option, step, names) -> str:
    return f"nk.spread({args[0]}, {key_set(step.keys[0], names)}, over={gone!r})"


_CALLS: dict[str, Callable[..., str]] = (
    {
        "softmax": _softmax,
        "contract": lambda args, gone, option, step, names: (
            f"nk.contract({', '.join(args)}, over={gone!r}{_keys(step, names)})"
        ),
        "take": _take,
        "slide": _slide,
        "compress": _compress,
        "spread": _spread,
        "cast": lambda args, gone, option, step, names: f"nk.cast({args[0]}, {option['dtype']!r})",
        "rename": lambda args, gone, option, step, names: f"nk.rename({args[0]}{_named(option)})",
        "cumsum": lambda args, gone, option, step, names: f"nk.cumsum({args[0]}, along={gone!r})",
        "sort": lambda args, gone, option, step, names: f"nk.sort({args[0]}, along={gone!r})",
        "scan": _scan,
        "uniform": lambda args, gone, option, step, names: f"nk.uniform({args[0]}, along={gone!r})",
        "dropout": lambda args, gone, option, step, names: f"nk.dropout({', '.join(args)})",
    }
    | dict.fromkeys((*REDUCE, *OWN_REDUCE), _reduce)
    | dict.fromkeys(RANKED, _ranked)
)


def key_set(keys: Keys, names: Sequence[str]) -> str:
    """The text of a key set."""
    if keys.pattern in {"&", "|"}:
        left, right = (key_set(k, names) for k in keys.parts)
        return f"({left} {keys.pattern} {right})"
    numbers = [repr(n) for n in keys.numbers]
    if keys.pattern in {"documents", "bigbird"}:
        tables = [names[r.at] for r in keys.tables]
        numbers += tables if keys.pattern == "documents" else [_list(tables)]
    numbers += [f"{k}={v!r}" for k, v in keys.options]
    numbers += [f"queries={' '.join(keys.queries)!r}", f"keys={' '.join(keys.keys)!r}"]
    if keys.at is not None:
        places = [f"nk.index({q!r}) + {keys.at}" for q in keys.queries]
        if keys.placed:
            places = [f"{names[keys.tables[0].at]} + {keys.at}"]
        numbers.append(f"at={_list(places) if keys.pattern == 'neighborhood' else places[0]}")
    return f"{_named_as(keys.pattern)}({', '.join(numbers)})"


def axes_of(program: Program) -> tuple[str, ...]:
    """Every axis that a value of a program has."""
    return union(*(s.axes for s in shapes(program)))
