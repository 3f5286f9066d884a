"""A mixture of experts: each token passes through the k experts that its router chose for it.

The layer of arXiv 1701.06538 with the capacities of arXiv 2101.03961 (section 2.2): expert e has s
slots, and I[e, s] is the token in each; E and P say for each of a token's k choices which expert
and which slot, and G how much it counts (0 for a token that found no slot). Slots that hold no
token may say anything: nobody reads their results. `nk.Routing` says how many slots to give.
"""

import napkin as nk


@nk.diagram(
    "t m, e s:int, e m f, e f n, t k, t k:int, t k:int -> t n",
    sizes=dict(t=4096, m=1024, e=16, s=640, f=4096, n=1024, k=2),
)
def mixture_of_experts(X, I, U, W, G, E, P):  # noqa: E741
    H = nk.gelu(nk.contract(nk.take(X, t=I), U, over="m"))
    Y = nk.contract(H, W, over="f")
    return nk.contract(G, nk.take(Y, e=E, s=P), over="k")
