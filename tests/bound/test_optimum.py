"""The optimum of a two-level cost: known formulas, and random programs checked against search."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Rational, sqrt

from napkin.bound.optimum import Optimum, optimum
from napkin.errors import InputError
from napkin.ir.symbols import MEMORY as M
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol

a, b, c, d, e, f, h, k, q, r, w, x, y = map(size_symbol, "abcdefhkqrwxy")
g_a, g_b, g_c, g_e, g_f, g_h, g_q, g_r = map(group_symbol, "abcefhqr")
s_b, s_d, s_x = map(stream_symbol, "bdx")

MATMUL = (a * b * c * (1 / g_a + 1 / g_c) + a * c, g_a * g_c + g_a * s_b + g_c * s_b)
MATMUL_GROUPS = {g_a: a, g_c: c}
ATTENTION = (2 * q * d + 2 * x * d * q / g_q, 2 * g_q * d + 2 * s_x * d)


def same(left: sympy.Expr, right: sympy.Expr) -> bool:
    return sympy.simplify(left - right) == 0


def assert_terms(found: Optimum, expected: Mapping[sympy.Rational, sympy.Expr]) -> None:
    assert [t.beta for t in found.terms] == sorted(expected)
    for term in found.terms:
        assert same(term.alpha, expected[term.beta])


def test_matmul_has_square_tiles() -> None:
    found = optimum(*MATMUL, MATMUL_GROUPS, streams={s_b: b})
    assert found.tiles == {g_a: sqrt(M), g_c: sqrt(M)}
    assert found.bound == 2 * a * b * c / sqrt(M) + a * c
    assert_terms(found, {sympy.Integer(0): a * c, Rational(1, 2): 2 * a * b * c})
    assert found.multiplier == a * b * c * M ** Rational(-3, 2)
    assert found.exact
    assert not found.clipped
    assert not found.arbitrary


def test_matmul_with_finite_streams() -> None:
    found = optimum(*MATMUL, MATMUL_GROUPS, streams={s_b: b}, finite=True)
    tile = sqrt(M + s_b**2) - s_b
    assert found.tiles == {g_a: tile, g_c: tile}
    assert same(found.bound, 2 * a * b * c / tile + a * c)
    assert same(found.multiplier.subs(s_b, 0), a * b * c * M ** Rational(-3, 2))
    assert_terms(found, {sympy.Integer(0): a * c, Rational(1, 2): 2 * a * b * c})


def test_matmul_resident() -> None:
    sizes = {a: 96, b: 64, c: 80}
    found = optimum(*MATMUL, MATMUL_GROUPS, streams={s_b: b}, sizes=sizes, memory=96 * 80)
    assert found.tiles == found.clipped == {g_a: a, g_c: c}
    assert found.bound == a * b + b * c + a * c
    assert found.multiplier == 0
    assert_terms(found, {sympy.Integer(0): a * b + b * c + a * c})


def test_skinny_matmul_changes_exponent() -> None:
    sizes = {a: 64, b: 4096, c: 4096}
    found = optimum(*MATMUL, MATMUL_GROUPS, streams={s_b: b}, sizes=sizes, memory=10**5)
    assert found.tiles == {g_a: a, g_c: M / a}
    assert found.clipped == {g_a: a}
    assert same(found.bound, a**2 * b * c / M + b * c + a * c)
    assert_terms(found, {sympy.Integer(0): a * c + b * c, sympy.Integer(1): a**2 * b * c})
    wide = optimum(*MATMUL, MATMUL_GROUPS, streams={s_b: b}, sizes={**sizes, a: 400}, memory=10**5)
    assert wide.tiles == {g_a: sqrt(M), g_c: sqrt(M)}


def test_unequal_slices() -> None:
    H = a * b * (x / g_b + w / g_a) + a * b * y
    found = optimum(H, y * g_a * g_b, {g_a: a, g_b: b})
    assert found.tiles == {g_a: sqrt(w * M / (x * y)), g_b: sqrt(x * M / (w * y))}
    assert found.bound == 2 * a * b * sqrt(x * w * y / M) + a * b * y


def test_softmax_contraction() -> None:
    H = q / g_q * (g_q * x + x * d + g_q * d)
    found = optimum(H, g_q * s_x + s_x * d + g_q * d, {g_q: q}, streams={s_x: x})
    assert found.tiles == {g_q: M / d}
    assert same(found.bound, q * x + q * d + x * q * d**2 / M)


def test_attention() -> None:
    found = optimum(*ATTENTION, {g_q: q}, streams={s_x: x})
    assert found.tiles == {g_q: M / (2 * d)}
    assert str(found.bound) == "2*d*q + 4*d**2*q*x/M"
    assert_terms(found, {sympy.Integer(0): 2 * d * q, sympy.Integer(1): 4 * d**2 * q * x})
    assert found.multiplier == 4 * d**2 * q * x / M**2


def test_attention_with_finite_streams() -> None:
    found = optimum(*ATTENTION, {g_q: q}, streams={s_x: x}, finite=True)
    assert found.tiles == {g_q: M / (2 * d) - s_x}
    assert found.bound == 2 * q * d + 4 * x * q * d**2 / (M - 2 * s_x * d)
    counted = ATTENTION[1] + g_q * s_x + 2 * g_q
    found = optimum(ATTENTION[0], counted, {g_q: q}, streams={s_x: x}, finite=True)
    assert same(found.tiles[g_q], (M - 2 * s_x * d) / (2 * d + s_x + 2))


def test_attention_resident() -> None:
    sizes = {q: 100, x: 200, d: 16, s_x: 32}
    enough = 2 * 16 * (100 + 32)
    for memory, tile in ((enough, q), (enough - 1, M / (2 * d) - s_x)):
        found = optimum(
            *ATTENTION, {g_q: q}, streams={s_x: x}, finite=True, sizes=sizes, memory=memory
        )
        assert found.tiles == {g_q: tile}
    found = optimum(*ATTENTION, {g_q: q}, streams={s_x: x}, sizes=sizes, memory=enough)
    assert found.bound == 2 * q * d + 2 * x * d


def test_multi_head_attention_takes_one_head_at_a_time() -> None:
    H = 2 * q * h * d + 2 * x * q * h * d / g_q
    use = 2 * g_q * g_h * d + 2 * s_x * g_h * d
    found = optimum(H, use, {g_h: h, g_q: q}, streams={s_x: x})
    assert found.tiles == {g_h: 1, g_q: M / (2 * d)}
    assert found.clipped == {g_h: 1}
    assert found.bound == 2 * h * q * d + 4 * h * x * q * d**2 / M


def test_grouped_query_attention_sees_only_the_product() -> None:
    H = k * (2 * q * r * d + 2 * x * d * q * r / (g_q * g_r))
    use = 2 * g_q * g_r * d + 2 * s_x * d
    groups = {g_q: q, g_r: r}
    found = optimum(H, use, groups, streams={s_x: x})
    assert found.bound == 2 * q * r * d * k + 4 * k * r * x * q * d**2 / M
    assert found.tiles == {g_q: M / (2 * d), g_r: 1}
    assert found.arbitrary == (g_r,)
    sizes = {q: 64, r: 8, k: 4, x: 4096, d: 128}
    split = optimum(H, use, groups, streams={s_x: x}, sizes=sizes, memory=2 * 128 * 256)
    assert split.tiles == {g_q: q, g_r: M / (2 * d * q)}
    assert split.bound == found.bound
    decode = optimum(H, use, groups, streams={s_x: x}, sizes={**sizes, q: 1}, memory=10**5)
    assert decode.tiles == {g_q: q, g_r: r}
    assert same(decode.bound, k * (2 * q * r * d + 2 * x * d))


def test_convolution_has_three_exponents() -> None:
    P, C_o, C_i = map(size_symbol, ("P", "C_o", "C_i"))
    g_p, g_o, s_i = group_symbol("p"), group_symbol("o"), stream_symbol("i")
    H = P * C_o * C_i * ((g_p + k - 1) / (g_p * g_o) + k / g_p) + P * C_o
    use = g_p * g_o + s_i * (g_p + k - 1 + k * g_o)
    found = optimum(H, use, {g_p: P, g_o: C_o}, streams={s_i: C_i})
    assert found.tiles == {g_p: sqrt(k * M), g_o: sqrt(M / k)}
    terms = {
        sympy.Integer(0): P * C_o,
        Rational(1, 2): 2 * P * C_o * C_i * sqrt(k),
        sympy.Integer(1): P * C_o * C_i * (k - 1),
    }
    assert_terms(found, terms)
    assert same(found.bound, sum(alpha * M**-beta for beta, alpha in terms.items()))
    finite = optimum(H, use, {g_p: P, g_o: C_o}, streams={s_i: C_i}, finite=True)
    assert finite.exact
    assert_terms(finite, terms)
    # One tap: the halo term vanishes, and the tiles are those of a matmul.
    sizes = {P: 4096, C_o: 4096, C_i: 64, k: 1}
    single = optimum(H, use, {g_p: P, g_o: C_o}, streams={s_i: C_i}, sizes=sizes, memory=10**4)
    assert [t.beta for t in single.terms] == [0, Rational(1, 2)]


def test_two_dimensional_convolution_to_leading_order() -> None:
    P, R, C = map(size_symbol, ("P", "R", "C"))
    g_p, g_t, g_o = map(group_symbol, ("p", "t", "o"))
    halo = (g_p + k - 1) * (g_t + k - 1)
    H = P * R * C * (halo / (g_p * g_t * g_o) + k**2 / (g_p * g_t))
    found = optimum(H, g_p * g_t * g_o, {g_p: P, g_t: R, g_o: C})
    side = sqrt(k) * M ** Rational(1, 4)
    assert not found.exact
    assert found.tiles == {g_p: side, g_t: side, g_o: sqrt(M) / k}
    assert [t.beta for t in found.terms] == [Rational(1, 2), Rational(3, 4), 1]
    assert same(found.terms[0].alpha, 2 * P * R * C * k)
    narrow = {P: 4096, R: 4, C: 512, k: 3}
    clipped = optimum(H, g_p * g_t * g_o, {g_p: P, g_t: R, g_o: C}, sizes=narrow, memory=10**4)
    assert clipped.exact
    assert clipped.clipped == {g_t: R}
    wide = {P: 4096, R: 4096, C: 512, k: 3}
    open_ = optimum(H, g_p * g_t * g_o, {g_p: P, g_t: R, g_o: C}, sizes=wide, memory=10**5)
    assert open_.tiles == found.tiles
    assert not open_.clipped


def test_tied_terms_share_the_budget() -> None:
    H = a / g_a + b / g_b + c / g_c
    found = optimum(H, d * g_a + g_b + e * g_c, {g_a: a, g_b: b, g_c: c})
    assert not found.exact
    assert same((d * g_a + g_b + e * g_c).subs(found.tiles), M)
    assert [t.beta for t in found.terms] == [1]


@pytest.mark.parametrize(("power", "memory"), [(1, 2), (2, 2), (2, 3)])
def test_tied_tiles_in_little_memory(power: int, memory: int) -> None:
    """Where the memory just holds tiles of size 1, that is what they are."""
    tile = (g_b * g_c) ** power
    groups, sizes = {g_a: a, g_b: b, g_c: c}, {a: 3, b: 3, c: 3}
    found = optimum(1 / tile + 1 / g_a, tile + g_a, groups, sizes=sizes, memory=memory)
    tiles = {g: float(found.tiles[g].subs({**sizes, M: memory})) for g in groups}
    assert tiles[g_a] == pytest.approx(memory / 2)
    assert (tiles[g_b] * tiles[g_c]) ** power == pytest.approx(memory / 2)
    assert float(found.bound.subs({**sizes, M: memory})) == pytest.approx(4 / memory)
    assert float(found.multiplier.subs({**sizes, M: memory})) == pytest.approx(4 / memory**2)


def test_a_program_of_many_tiles_takes_moments() -> None:
    """Its linear program has 1.6e8 bases: a search of them all did not end in a minute."""
    tiles = [group_symbol(n) for n in "abcdefhk"]
    groups = dict(zip(tiles, (a, b, c, d, e, f, h, k), strict=True))
    pairs = list(itertools.pairwise(tiles))
    H = sum(1 / (s * t) for s, t in pairs) + sum(1 / t for t in tiles)
    use = sum(s * t for s, t in pairs) + sum(tiles)
    begun = time.process_time()
    found = optimum(H, use, groups)
    assert time.process_time() - begun < 10
    at = {**dict.fromkeys(groups.values(), 2**20), M: 2**20}
    tile = {t: found.tiles[t].subs(at) for t in tiles}
    assert float(use.subs(tile)) <= 2**20 * 1.01 + 30 * 2**10
    assert float(found.bound.subs(at)) == pytest.approx(float(H.subs(tile)), rel=0.3)


def test_statistics_beside_the_tile() -> None:
    """norm ; linear: per-row sums make the tile oblong, and add a term of exponent 1."""
    H = q * d * f * (1 / g_f + 1 / g_q) + q * f
    use = g_q * g_f + g_q * s_d + s_d * g_f + 2 * g_q
    found = optimum(H, use, {g_q: q, g_f: f}, streams={s_d: d})
    assert found.tiles == {g_q: M / (sqrt(M) + 2), g_f: sqrt(M)}
    assert found.bound == q * f + 2 * q * d * f / sqrt(M) + 2 * q * d * f / M
    finite = optimum(H, use, {g_q: q, g_f: f}, streams={s_d: d}, finite=True)
    assert same(finite.bound.subs(s_d, 0), found.bound)
    assert same(use.subs(finite.tiles), M)


def test_tiled_output_columns_of_attention() -> None:
    """The value columns grouped too: M = g_q d + g_q g_e is no monomial, yet exact."""
    H = q * d * e / g_e + x * d * q * e / (g_q * g_e) + x * e * q / g_q + q * e
    found = optimum(H, g_q * d + g_q * g_e, {g_q: q, g_e: e})
    assert found.exact
    assert same(found.tiles[g_e], sqrt(d * (d + M / x)))
    assert same((g_q * d + g_q * g_e).subs(found.tiles), M)
    assert [t.beta for t in found.terms] == [0, Rational(1, 2), 1]


def test_three_way_contraction() -> None:
    H = a * b * c * (1 / g_a + 1 / g_b + 1 / g_c)
    found = optimum(H, g_a * g_b * g_c, {g_a: a, g_b: b, g_c: c})
    assert found.bound == 3 * a * b * c * M ** Rational(-1, 3)


def test_no_groups_and_no_memory() -> None:
    found = optimum(a * b + b * c + a * c, a * b, {})
    assert found.bound == a * b + b * c + a * c
    assert found.tiles == {}
    assert found.multiplier == 0
    constant = optimum(2 * q * d, g_q * d, {g_q: q})
    assert constant.tiles == {g_q: 1}  # only costs memory
    free = optimum(*ATTENTION, {g_q: q, g_b: b}, streams={s_x: x})
    assert free.tiles[g_b] == 1
    streamed = optimum(2 * q * d + x * d * q / g_q, 2 * s_x * d, {g_q: q}, streams={s_x: x})
    assert streamed.tiles == {g_q: q}  # costs no memory
    assert streamed.bound == 2 * q * d + x * d


def test_a_stream_that_lowers_transfers_is_a_variable() -> None:
    """A halo loaded again with every chunk: small chunks are no longer free."""
    found = optimum(x * d * (s_x + k) / s_x + q * d, s_x * d, {}, streams={s_x: x})
    assert found.tiles == {s_x: M / d}
    assert found.bound == x * d + q * d + x * d**2 * k / M


@pytest.mark.parametrize(
    ("cost", "use", "options", "message"),
    [
        (ATTENTION[0], ATTENTION[1], {"sizes": {q: 8}, "memory": 9}, "no number for d, x"),
        (ATTENTION[0], ATTENTION[1], {"sizes": {q: 8}}, "needs both"),
        (
            ATTENTION[0],
            ATTENTION[1],
            {"sizes": {q: 8, d: 8, x: 8}, "memory": 9},
            "the smallest tiles need 16 values",
        ),
        (q * g_q, g_q, {}, "H grows with g_q"),
        (q / g_q, 1 / g_q, {}, "M falls as g_q"),
        (q / (g_q + 1), g_q, {}, "H is not a sum of monomials"),
        (q / g_q, 2**g_q, {}, "M is not a sum of monomials"),
        (q / g_q - 2 * d / g_q**2, g_q, {}, "H has the negative coefficient"),
    ],
)
def test_wrong_input(
    cost: sympy.Expr, use: sympy.Expr, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        optimum(cost, use, {g_q: q}, streams={s_x: x}, **options)


AXES = (a, b, c)
TILES = (g_a, g_b, g_c)
Sum = list[tuple[int, tuple[int, ...]]]


def evaluate(terms: Sum, point: tuple[float, ...]) -> float:
    return sum(n * math.prod(g**p for g, p in zip(point, ps, strict=True)) for n, ps in terms)


def write(terms: Sum) -> sympy.Expr:
    return sympy.Add(
        *(n * sympy.prod([g**p for g, p in zip(TILES, ps, strict=False)]) for n, ps in terms)
    )


@st.composite
def programs(draw: st.DrawFn) -> tuple[Sum, Sum, tuple[int, ...], int]:
    """H and M with powers of 0, 1 or 2, axis sizes, and a memory that holds the smallest tiles."""
    count = draw(st.integers(1, 3))
    powers = st.tuples(*[st.sampled_from((0, 1, 1, 0, 2))] * count)
    cost = draw(st.lists(st.tuples(st.integers(1, 2000), powers), min_size=1, max_size=4))
    use = draw(st.lists(st.tuples(st.integers(1, 20), powers), min_size=1, max_size=3))
    sizes = tuple(draw(st.sampled_from((1, 3, 10, 64, 1000))) for _ in range(count))
    memory = draw(st.integers(sum(n for n, _ in use), 10**5))
    return [(n, tuple(-p for p in ps)) for n, ps in cost], use, sizes, memory


@settings(max_examples=80, deadline=None)
@given(program=programs(), seed=st.integers(0, 2**16))
def test_no_feasible_point_beats_an_exact_optimum(
    program: tuple[Sum, Sum, tuple[int, ...], int], seed: int
) -> None:
    cost, use, sizes, memory = program
    count = len(sizes)
    numbers = dict(zip(AXES, sizes, strict=False))
    found = optimum(
        write(cost),
        write(use),
        dict(zip(TILES[:count], AXES[:count], strict=True)),
        sizes=numbers,
        memory=memory,
    )
    values = {**numbers, M: memory}
    tiles = tuple(float(found.tiles[g].subs(values)) for g in TILES[:count])
    bound = float(found.bound.subs(values))
    assert bound == pytest.approx(evaluate(cost, tiles), rel=1e-9)
    if not found.exact:
        return
    assert evaluate(use, tiles) <= memory * (1 + 1e-9)
    assert all(1 - 1e-9 <= g <= n * (1 + 1e-9) for g, n in zip(tiles, sizes, strict=True))
    rng = random.Random(seed)
    for _ in range(100):
        # Half anywhere in the box, half close by; each grown or shrunk along a ray to fit.
        near = rng.random() < 0.5
        logs = [
            math.log(g) + rng.gauss(0, 0.1) if near else rng.uniform(0, math.log(n))
            for g, n in zip(tiles, sizes, strict=True)
        ]
        for shift in (0.1, 0.01, 0.0, -0.01, -0.1, -0.5, -2.0):
            point = tuple(
                min(max(math.exp(z + shift), 1.0), float(n))
                for z, n in zip(logs, sizes, strict=True)
            )
            if evaluate(use, point) <= memory:
                assert evaluate(cost, point) >= bound * (1 - 1e-6)
                break


@settings(max_examples=30, deadline=None)
@given(program=programs())
def test_multiplier_is_the_slope_of_the_bound(
    program: tuple[Sum, Sum, tuple[int, ...], int],
) -> None:
    cost, use, sizes, memory = program
    count = len(sizes)
    numbers = dict(zip(AXES, sizes, strict=False))
    found = optimum(
        write(cost),
        write(use),
        dict(zip(TILES[:count], AXES[:count], strict=True)),
        sizes=numbers,
        memory=memory,
    )
    step = 1e-5 * memory

    def bound(at: float) -> float:
        return float(found.bound.subs({**numbers, M: at}).evalf(30))

    # A constant part of M that fills the memory leaves no room, where the slope is infinite.
    slope = found.multiplier.subs({**numbers, M: memory})
    if slope.is_finite and bound(memory) < 100 * bound(memory * 2):
        change = (bound(memory - step) - bound(memory + step)) / (2 * step)
        assert float(slope) == pytest.approx(change, rel=1e-2, abs=1e-6)
