"""Plans for the same result, side by side: what each moves, keeps and is predicted to take."""

from __future__ import annotations

from napkin.errors import InputError
from napkin.plan.plan import Plan


def comparison(*plans: Plan) -> str:
    """A line for each plan; the first is what the factors of the others are against.

    Raises:
        InputError: there is none, or one is no plan.
    """
    others = [type(p).__name__ for p in plans if not isinstance(p, Plan)]  # pyright: ignore
    if others or not plans:
        what = f"takes plans, not {others[0]}" if others else "needs a plan"
        raise InputError(f"comparison {what}; write one, as in nk.comparison(nk.derive(f))")
    first = plans[0]
    width = max(len(p.name) for p in plans)
    lines: list[str] = []
    for p in plans:
        many = "kernel " if len(p.kernels) == 1 else "kernels"
        lines.append(
            f"{p.name:<{width}}  {len(p.kernels)} {many}  "
            f"{p.moved:>15,} bytes ({p.moved / first.moved:.2f}x)  "
            f"workspace {p.workspace:>13,} bytes  "
            f"{p.seconds * 1e6:>8.1f} us ({p.seconds / first.seconds:.2f}x)"
        )
    return "\n".join(lines)
