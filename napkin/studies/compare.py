"""Plans for the same result, side by side: what each moves, keeps and is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass

from napkin.plan.plan import Plan


@dataclass(frozen=True)
class Row:
    """One plan.

    Attributes:
        name: the diagram's name.
        kernels: launches.
        moved: bytes that all kernels read and write (H).
        workspace: bytes of arrays that pass between kernels, at most at once.
        seconds: predicted time.
    """

    name: str
    kernels: int
    moved: int
    workspace: int
    seconds: float


def row(plan: Plan) -> Row:
    """What a plan costs at its sizes."""
    moved = sum(n for k in plan.launched.kernels for n in k.bytes.values())
    return Row(plan.name, len(plan.kernels), moved, plan.workspace, plan.seconds)


def comparison(*plans: Plan) -> str:
    """A line for each plan; the first is what the factors of the others are against."""
    rows = [row(p) for p in plans]
    first = rows[0]
    width = max(len(r.name) for r in rows)
    lines: list[str] = []
    for r in rows:
        many = "kernel " if r.kernels == 1 else "kernels"
        lines.append(
            f"{r.name:<{width}}  {r.kernels} {many}  "
            f"{r.moved:>15,} bytes ({r.moved / first.moved:.2f}x)  "
            f"workspace {r.workspace:>13,} bytes  "
            f"{r.seconds * 1e6:>8.1f} us ({r.seconds / first.seconds:.2f}x)"
        )
    return "\n".join(lines)
