"""A mixture of experts that leaves out no token: grouped products over blocks of rows.

Rows are sorted by expert. Each expert's rows fill whole blocks of s rows, and expert E[b] serves
block b, as in arXiv 2211.15841 (section 5). I says which token each row is, and B and P in which
block and at which place of it the rows of a token's k choices are. `nk.Routing` packs the choices
of a router. Rows that hold no token may say anything: nobody reads their results.
"""

import napkin as nk


@nk.diagram(
    "t m, b s:int, b:int, e m f, e f n, t k, t k:int, t k:int -> t n",
    sizes=dict(t=4096, m=1024, b=79, s=128, e=16, f=4096, n=1024, k=2),
)
def grouped_experts(X, I, E, U, W, G, B, P):  # noqa: E741
    H = nk.gelu(nk.contract(nk.take(X, t=I), nk.take(U, e=E), over="m"))
    Y = nk.contract(H, nk.take(W, e=E), over="f")
    return nk.contract(G, nk.take(Y, b=B, s=P), over="k")


def _grouped(X, I, E, U, W, G, B, P):  # noqa: E741
    import torch
    from torch.nn.functional import gelu

    order = (E := E.clamp(0, len(U) - 1)).argsort()
    place, rows = order.argsort(), I[order].flatten().long().clamp(0, len(X) - 1)
    ends = (E.bincount(minlength=len(U)).cumsum(0) * I.shape[1]).int()
    block, at = place[B.long().clamp(0, len(I) - 1)], P.long().clamp(0, I.shape[1] - 1)

    def run():
        H = gelu(torch._grouped_mm(X[rows], U, offs=ends))
        Y = torch._grouped_mm(H, W, offs=ends).view(*I.shape, -1)
        return (G[..., None] * Y[block, at]).sum(1)

    return run


baselines = {"torch._grouped_mm": _grouped}
