"""The gradient of SwiGLU, silu(G) * U, with respect to both arrays (arXiv 2002.05202)."""

import napkin as nk


@nk.diagram("n f, n f, n f -> n f, n f", sizes={"n": 8192, "f": 14336})
def swiglu_gradient(G, U, dY):
    gate = nk.sigmoid(G)
    return dY * U * gate * (1 + G * (1 - gate)), dY * G * gate
