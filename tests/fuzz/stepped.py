"""Scans of several states, of whole numbers, and of states that are multiplied by matrices: what is
drawn from `SEVERAL` on."""

from __future__ import annotations

from drawing import Drawing
from programs import FORMS, WIDER_STEPS, Axes, Ref
from scans import folded

LONG = (1, 3, 4, 7, 17, 33)
HELD = (16, 16, 5, 2, 32)
PRODUCTS = tuple(f for f, made in WIDER_STEPS.items() if "weights" in made.reads)
WITHIN = tuple(
    f for f, made in WIDER_STEPS.items() if "within" in made.text and f not in {*PRODUCTS, "delta"}
)
ALONE = tuple(f for f, made in WIDER_STEPS.items() if "within" not in made.text)


def states(d: Drawing) -> Ref:
    """The states of a scan, and often what is made of them, beside other results."""
    form = d.rng.choice((*PRODUCTS, "rotated", "delta", "delta", *WITHIN, *ALONE))
    t, b, e = (
        d.axis(d.rng.choice(LONG)),
        d.axis(d.rng.choice((1, 2, 16))),
        d.axis(d.rng.choice(HELD)),
    )
    rows: Axes = (b,) if d.chance(0.7) else ()
    x = d.input(d.some((t, *rows, e), 9, 9), "int" if form == "counted" else "real")
    x = d.step("tanh", x) if d.chance(0.2) and form != "counted" else x
    y = scan(d, form, x, t, e, rows)
    if FORMS[form].states > 1 and d.chance(0.4):  # another state of the same steps
        made, _ = d.made[-1]
        other = {**made.option, "which": (made.option["which"] + 1) % FORMS[form].states}
        d.outputs.append(d.step("scan", *made.args, over=t, **other))
    if form == "counted":
        d.outputs.append(y)
        return d.step("mul", d.step("cast", y, dtype="fp32", kind="real", public=False), 0.125)
    way = d.rng.choice(("plain", "plain", "folded", "folded", "beside", "beside", "again"))
    if way == "plain":
        return y
    if way == "folded":
        return folded(d, y, t)
    if way == "again":  # a scan of a scan along another axis, or back
        along = d.rng.choice((t, e, *rows))
        return scan(d, d.rng.choice(ALONE[1:]), y, along, "", ())
    how = d.rng.choice(("sum", "max", "mean", "logsumexp", "cumsum", "softmax"))
    z = d.step(how, x, over=d.rng.choice((t, e)))
    d.outputs.append(z if d.chance(0.5) else d.step("add", y, z))
    return y


def scan(d: Drawing, form: str, x: Ref, t: str, e: str, rows: Axes) -> Ref:
    """A state of a scan of values along `t`, with a form that may take in the axis `e`."""
    own, columns = FORMS[form], d.axis(d.sizes[e]) if form in PRODUCTS else ""
    option: dict[str, object] = {"form": form}
    option |= {"within": e} if "within" in own.text else {}
    option |= {"product": columns} if columns else {}
    v = d.axis(d.rng.choice((16, 3, 1))) if form == "delta" else ""
    read: list[Ref | float] = []
    for name in own.reads:
        if name == "weights":  # of each position, of each row, or the same for all
            axes = (*d.some((t, *rows), 0, d.rng.choice((0, 0, 1))), e, columns)
            read.append(d.step("mul", d.input(axes), d.rng.choice((0.2, 0.1)), public=False))
        elif name == "factor":
            gate = d.step("sigmoid", d.input(d.rng.choice(((t,), (t, *rows), (e,) if e else ()))))
            read.append(d.rng.choice((0.5, -0.9, gate, gate)))
        elif name == "key":
            scaled = d.step("mul", x, d.rng.choice((0.25, 0.1)), public=False)
            read.append(d.step("softmax", x, over=e) if d.chance(0.3) else scaled)
        else:
            read.append(d.input((t, *rows, v)) if v else x)
    if columns or v or d.chance(0.3):
        every = tuple(a for a in (*rows, v if v else "", e) if a)
        option["axes"] = " ".join(dict.fromkeys((*([e] if e else []), *d.some(every, 0, 2))))
    if not option.get("axes") and "within" not in option:
        option.pop("axes", None)
    if own.states > 1:
        option["which"] = d.rng.randrange(own.states)
    kinds = ("counted",)
    numbers = (0, 3) if form in kinds else (0.0, 0.0, 0.5, -1.0)
    starts: list[Ref | float] = [d.rng.choice(numbers) for _ in range(own.states)]
    held = [a for a in d.axes_of(x) if a != t]
    if form not in kinds and d.chance(0.4):
        starts[0] = d.input(d.some(held, 0, 2), public=False)
    return d.step("scan", *starts, *read, over=t, **option)
