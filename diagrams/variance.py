"""The variance of every row, about its mean and over all of its n values.

Written in two passes; streamed, it is the merge of Chan, Golub and LeVeque (1979, "Updating
Formulae and a Pairwise Algorithm for Computing Sample Variances").
"""

import napkin as nk


@nk.diagram("n x -> n", sizes={"n": 8192, "x": 4096})
def variance(X):
    mean = nk.reduce(X, "mean", over="x")
    return nk.reduce((X - mean) ** 2, "mean", over="x")
