"""A tensor of three axes times the Khatri-Rao product of two matrices (MTTKRP), the step of
alternating least squares for a CP decomposition (Kolda and Bader, SIAM Review 51, 2009, section
3.4).
"""

import napkin as nk


@nk.diagram("i j k, j r, k r -> i r", sizes={"i": 512, "j": 512, "k": 512, "r": 64})
def mttkrp(X, B, C):
    return nk.contract(X, B, C, over="j k")
