"""Attention over a cache of keys and values in fp8 (e4m3), beside queries and outputs in 16 bits.

The values of the cache are `k_scale * K` and `v_scale * V`: one scale for each array, as serving
systems keep it (vLLM, "Quantized KV Cache"). fp8 is that of arXiv 2209.05433, section 3.
"""

import napkin as nk


@nk.diagram("q d, x d:fp8, x d:fp8 -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def attention_fp8_kv(Q, K, V, k_scale=1.0, v_scale=1.0):
    S = nk.contract(Q, K, over="d") * (nk.size("d") ** -0.5 * k_scale)
    return nk.contract(nk.softmax(S, over="x"), V, over="x") * v_scale
