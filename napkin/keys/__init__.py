"""Key sets: which positions of the key axes each query sees.

A key set is a union of boxes, each a product over the key axes of affine intervals whose bounds are
terms over the query's coordinates (SPLAT, arXiv 2407.16847, stores one such progression per row of
a flattened mask; here the axes stay apart).
"""
