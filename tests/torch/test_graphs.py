"""`torch.compile` captures every function whole; the graph gives what the call gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import napkin as nk
import napkin.torch as nkt
from napkin.torch import keys
from napkin.torch.function import Function
from napkin.torch.keys import called


@nk.diagram("n d, d -> n d, n")
def scaled(X: Any, G: Any, eps: Any = 1e-6) -> Any:
    mean = nk.reduce(X * X, "mean", over="d")
    return X * nk.rsqrt(mean + eps) * G, mean


def attend(q: Any, k: Any, mask: Any) -> Any:
    seen = nkt.attention(q * 2, k, k, attn_mask=mask, enable_gqa=True)
    return nkt.attention(seen, k, k, is_causal=True, scale=0.3, enable_gqa=True) + 1


def neighbors(q: Any, extra: Any) -> Any:
    out, lse = nkt.na1d(q, q, q, 3, additional_keys=extra, additional_values=extra, return_lse=True)
    return out * 2, lse


def norm(x: Any, g: Any) -> Any:
    out, mean = scaled_on_torch(x + 1, g, eps=0.1)
    return out * mean[:, None]


scaled_on_torch = nkt.compile(scaled)
CASES = {
    "attention": (attend, [(2, 4, 20, 16), (2, 2, 20, 16), (20, 20)]),
    "neighborhood attention": (neighbors, [(2, 20, 2, 16), (2, 5, 2, 16)]),
    "a diagram": (norm, [(9, 40), (40,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_no_graph_break_and_the_same_values(name: str) -> None:
    torch._dynamo.reset()
    function, shapes = CASES[name]
    arrays = [torch.randn(s) for s in shapes]
    found = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)(*arrays)
    torch.testing.assert_close(found, function(*arrays), rtol=0, atol=0)


def test_a_module_and_no_needless_compilation() -> None:
    torch._dynamo.reset()
    made = nkt.NeighborhoodAttention1D(32, 2, kernel_size=3)
    graphs: list[Any] = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    fast = torch.compile(made, fullgraph=True, backend=count, dynamic=False)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 20, 32)
            assert torch.equal(fast(x), made(x))
    assert len(graphs) == 1
    assert sum("napkin.run" in str(n.target) for n in graphs[0].graph.nodes) == 1


def test_sizes_that_are_symbols() -> None:
    torch._dynamo.reset()

    def last(q: Any, k: Any) -> Any:
        return nkt.attention(q, k, k, is_causal=True, scale=0.3, enable_gqa=True)

    fast = torch.compile(last, fullgraph=True, backend="eager", dynamic=True)
    for n in (20, 24):
        q, k = torch.randn(2, 4, n, 16), torch.randn(2, 2, n, 16)
        assert torch.equal(fast(q, k), last(q, k))


def test_axes_that_are_symbols() -> None:
    """A second value of a number makes it one."""
    torch._dynamo.reset()
    x, target = torch.randn(3, 3, 3), torch.zeros(3, 3, dtype=torch.long)

    def along(dim: int) -> Any:
        return nkt.softmax(x, dim), nkt.cross_entropy(x, target, dim=dim)

    fast = torch.compile(along, fullgraph=True, backend="eager")
    for dim in (0, 1, -1):
        torch.testing.assert_close(fast(dim), along(dim), rtol=0, atol=0)


def test_inferred_outputs_are_those_that_come() -> None:
    """Shape, type and strides, as torch's own check of operators compares them."""
    arrays = [torch.randn(9, 40).bfloat16(), torch.randn(40).bfloat16()]
    given = (arrays, scaled_on_torch._key, [1e-6])
    torch.library.opcheck(torch.ops.napkin.run.default, given, test_utils="test_faketensor")
    lse = called(_key(neighbors))
    arrays = [torch.randn(2, 20, 2, 16).bfloat16() for _ in range(3)]
    arrays += [torch.randn(2, 5, 2, 16).bfloat16() for _ in range(2)]
    torch.library.opcheck(
        torch.ops.napkin.run.default, (arrays, lse.key, []), test_utils="test_faketensor"
    )


def test_equal_outputs() -> None:
    @nk.diagram("n x -> n, n")
    def twice(X: Any) -> Any:
        total = nk.reduce(X, "sum", over="x")
        return total, total

    torch._dynamo.reset()
    function, x = nkt.compile(twice), torch.randn(5, 20)
    fast = torch.compile(lambda x: function(x), fullgraph=True, backend="aot_eager")
    for found in (function(x), fast(x)):
        torch.testing.assert_close(found, (x.sum(1), x.sum(1)), rtol=1e-5, atol=1e-5)


def _key(function: Any) -> str:
    """The key that a function's graph calls."""
    keys: list[str] = []

    def look(graph: Any, _: Any) -> Any:
        keys.extend(n.args[1] for n in graph.graph.nodes if "napkin.run" in str(n.target))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=look)(torch.randn(2, 20, 2, 16), torch.randn(2, 5, 2, 16))
    return keys[0]


def test_a_key_says_what_to_build_in_another_process() -> None:
    key = _key(neighbors)
    known = called(key)

    keys._FUNCTIONS.pop(key)  # as in a process that has not traced it
    again = called(key)
    assert isinstance(again, Function)
    assert again is not known
    assert again.print == known.print
    with pytest.raises(nk.InputError, match="calls the diagram 'nobody:0', which this process"):
        called("nobody:0")


KEYS = ["attention(1, 2", "attention(x)", "attention(1, 2, 3)", f"attention({'(' * 9999}",
        "gradient 0 attention('q d, x d, x d -> q d', False, '', False)",
        "mapped x attention('q d, x d, x d -> q d', False, '', False)", "mapped 9 " * 9999,
        "mapped 9 attention('q d, x d, x d -> q d', False, '', False)"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda k: k[:20])
def test_a_key_that_calls_nothing(key: str) -> None:
    with pytest.raises(nk.InputError, match="is no call of this version of napkin; capture it"):
        called(key)


def test_a_flag_that_sizes_decide() -> None:
    """While a graph is captured with sizes as symbols, a comparison of them is no bool."""
    kinds = list[type]()

    def of_itself(q: torch.Tensor) -> torch.Tensor:
        kinds.append(type(long := q.shape[-2] > 1))
        return nkt.attention(q, q, q, is_causal=long)

    q = torch.randn(2, 3, 8, 16)
    found = make_fx(of_itself, tracing_mode="symbolic")(q)(q)
    assert kinds == [torch.SymBool]
    wanted = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(found, wanted)
