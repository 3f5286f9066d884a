"""Gated triangle multiplication of a pair representation (AlphaFold 2, algorithm 11).

Channels lie last, as the layers around it store them. Each channel is a matrix product.
"""

import napkin as nk


@nk.diagram("i k c, i k c, j k c, j k c -> i j c", sizes={"i": 512, "j": 512, "k": 512, "c": 128})
def triangle_multiplication(A, G, B, H):
    return nk.contract(A * nk.sigmoid(G), B * nk.sigmoid(H), over="k")
