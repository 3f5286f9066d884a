"""Recurrent steps, state-space scans, filters in time and other sums along a line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from entries import Numbers, compared, lse, sigmoid, soft

import napkin as nk


def states(step: Callable[..., Numbers], state: Numbers, *parts: Numbers, axis: int = 1) -> Numbers:
    """The states of a step that reads these at one position after another."""
    each = zip(*(np.moveaxis(p, axis, 0) for p in parts), strict=True)
    found = [state := step(state, *x) for x in each]
    return np.stack(found, axis)


def stepped(a: Numbers, b: Numbers, axis: int = 1) -> Numbers:
    """States of h = a h + b from 0."""
    step = lambda h, a, b: a * h + b  # noqa: E731
    return states(step, np.zeros(()), *np.broadcast_arrays(a, b), axis=axis)


def _lstm(
    x: Numbers, h: Numbers, c: Numbers, w: Numbers, u: Numbers, b: Numbers
) -> tuple[Numbers, Numbers]:
    i, f, g, o = np.einsum("nd,gdm->gnm", x, w) + np.einsum("nk,gkm->gnm", h, u) + b[:, None]
    new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(new), new


@compared(_lstm, n=3, d=4, k=5, m=5, g=4)
@nk.diagram(
    "n d, n k, n m, g d m, g k m, g m -> n m, n m",
    sizes=dict(n=256, d=1024, k=1024, m=1024, g=4),
)
def lstm_step(X, H, C, W, U, B):
    """A step of an LSTM (Hochreiter and Schmidhuber, 1997); gates i, f, g, o along g."""
    Z = nk.contract(X, W, over="d") + nk.contract(H, U, over="k") + B
    i, f, g, o = (nk.take(Z, g=n) for n in range(4))
    new = nk.sigmoid(f) * C + nk.sigmoid(i) * nk.tanh(g)
    return nk.sigmoid(o) * nk.tanh(new), new


def _gru(x: Numbers, h: Numbers, w: Numbers, u: Numbers) -> Numbers:
    a, b = np.einsum("nd,gdm->gnm", x, w), np.einsum("nk,gkm->gnm", h, u)
    r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
    return (1 - z) * np.tanh(a[2] + r * b[2]) + z * h


@compared(lambda x, h, w, u, e: _gru(x, h, w, u) + 0 * e, n=3, d=4, k=5, m=5, g=3)
@nk.diagram("n d, n k, g d m, g k m, n m -> n m", sizes=dict(n=512, d=512, k=512, m=512, g=3))
def gru_step(X, H, W, U, E):
    """A step of a GRU (arXiv 1406.1078); E is the state once more, by its other name."""
    A, B = nk.contract(X, W, over="d"), nk.contract(H, U, over="k")
    r = nk.sigmoid(nk.take(A, g=0) + nk.take(B, g=0))
    z = nk.sigmoid(nk.take(A, g=1) + nk.take(B, g=1))
    new = nk.tanh(nk.take(A, g=2) + r * nk.take(B, g=2))
    return (1 - z) * new + z * H.rename(k="m") + 0.0 * E


@compared(lambda x, z: stepped(1 - sigmoid(z), sigmoid(z) * x), b=2, t=6, d=3)
@nk.diagram("b t d, b t d -> b t d", sizes=dict(b=16, t=4096, d=1024))
def minimal_gru(X, Z):
    """A GRU whose gates see the input alone, as a scan (arXiv 2410.01201)."""
    z = nk.sigmoid(Z)
    return nk.scan(lambda h: (1 - z) * h + z * X, 0.0, along="t")


def _rglru(x: Numbers, r: Numbers, i: Numbers, lam: Numbers) -> Numbers:
    a = np.exp(-8.0 * np.log1p(np.exp(lam)) * sigmoid(r))
    return stepped(a, np.sqrt(1 - a * a) * sigmoid(i) * x)


@compared(_rglru, b=2, t=6, d=3)
@nk.diagram("b t d, b t d, b t d, d -> b t d", sizes=dict(b=8, t=4096, d=2560))
def real_gated_linear_unit(X, R, I, L):  # noqa: E741
    """The recurrent layer of Griffin (arXiv 2402.19427, section 2.4)."""
    a = nk.exp(-8.0 * nk.log(1 + nk.exp(L)) * nk.sigmoid(R))
    b = nk.sqrt(1 - a * a) * nk.sigmoid(I) * X
    return nk.scan(lambda h: a * h + b, 0.0, along="t")


def _mamba2(x: Numbers, dt: Numbers, a: Numbers, b: Numbers, c: Numbers) -> Numbers:
    decay = np.exp(dt * a)[..., None, None]
    fed = (dt[..., None] * x)[..., None] * b[:, :, None, None]
    return np.einsum("bthpn,btn->bthp", stepped(decay, fed), c)


def _mamba2_chunks(x: Numbers, dt: Numbers, a: Numbers, b: Numbers, c: Numbers) -> Numbers:
    rows = [v.reshape(len(v), -1, *v.shape[3:]) for v in (x, dt, b, c)]
    return _mamba2(rows[0], rows[1], a, rows[2], rows[3]).reshape(x.shape)


@compared(_mamba2_chunks, ranges={"D": (0.0, 1.0), "A": (-1.0, 0.0)}, slow=True,
          b=2, c=3, i=4, h=2, p=3, n=5)  # fmt: skip
@nk.diagram(
    "b c i h p, b c i h, h, b c i n, b c i n -> b c i h p",
    sizes=dict(b=4, c=32, i=64, h=32, p=64, n=64),
)
def state_space_chunks(X, D, A, B, C):
    """Mamba-2 with t as chunks c of positions i: products within a chunk, and a matrix between
    chunks (arXiv 2405.21060, section 6). W is what is left at i of what comes in at j."""
    i, j = nk.index("i"), nk.index("j")
    decay = nk.exp(D * A)
    W = nk.scan(lambda h: decay * h + nk.where(i == j, 1.0, 0.0), 0.0, along="i")
    last = nk.reduce(nk.where(i == nk.size("i") - 1, W, 0.0), "sum", over="i")
    fed, keys, step = (V.rename(i="j") for V in (X, B, D))
    own = nk.contract(last * step, fed, keys, over="j")
    whole = nk.reduce(decay, "prod", over="i")
    H = nk.scan(lambda h: whole * h + own, 0.0, along="c")
    before = nk.where(nk.index("c") > 0, nk.take(H, c=nk.index("c") - 1), 0.0)
    since = nk.scan(lambda h: decay * h + nk.where(i == 0, decay, 0.0), 0.0, along="i")
    inside = nk.contract(nk.contract(C, keys, over="n") * W * step, fed, over="j")
    return inside + since * nk.contract(C, before, over="n")


def _quadratic(x: Numbers, s: Numbers, b: Numbers, c: Numbers) -> Numbers:
    total = np.cumsum(s, -1)
    gap = total[:, :, None] - total[:, None]
    far = np.subtract.outer(np.arange(s.shape[1]), np.arange(s.shape[1]))
    decay = np.where(far >= 0, np.exp(np.minimum(gap, 0)), 0)
    return np.einsum("qn,xn,hqx,hxp->hqp", c, b, decay, x)


@compared(lambda x, a, b, c, e: _quadratic(x, a, b, c) + 0 * e[..., None],
          ranges={"A": (-1.0, 0.0)},
          h=2, x=6, q=6, n=3, p=4)  # fmt: skip
@nk.diagram("h x p, h x, x n, q n, h q -> h q p", sizes=dict(h=24, x=2048, q=2048, n=128, p=64))
def state_space_quadratic(X, A, B, C, E):
    """The quadratic form of Mamba-2: scores with a decay between positions (arXiv 2405.21060)."""
    total = nk.cumsum(A, along="x")
    decay = nk.exp(total.rename(x="q") - total)
    S = nk.contract(C, B, over="n") * decay
    return nk.contract(S, X, over="x", keys=nk.causal("q", "x")) + 0.0 * E


def _wkv(k: Numbers, v: Numbers, w: Numbers, u: Numbers) -> Numbers:
    out = np.empty(k.shape)
    for t in range(k.shape[1]):
        far = np.arange(t)[::-1]
        weight = np.exp(-w * far[:, None] + k[:, :t])
        own = np.exp(u + k[:, t])
        total = (weight * v[:, :t]).sum(1) + own * v[:, t]
        out[:, t] = total / (weight.sum(1) + own)
    return out


@compared(_wkv, ranges={"W": (0.1, 1.0)}, b=2, t=6, d=3)
@nk.diagram("b t d, b t d, d, d -> b t d", sizes=dict(b=8, t=2048, d=2048))
def wkv(K, V, W, U):
    """The WKV of RWKV-4: decaying sums of the past, and a bonus of its own (arXiv 2305.13048)."""
    keys, decay = nk.exp(K), nk.exp(-W)
    past = nk.scan(lambda h: decay * h + keys * V, 0.0, along="t")
    norm = nk.scan(lambda h: decay * h + keys, 0.0, along="t")
    own, back = nk.exp(U + K), nk.exp(W)
    return ((past - keys * V) * back + own * V) / ((norm - keys) * back + own)


@compared(lambda x: stepped(np.full(x.shape, 0.9), 0.1 * x), n=3, t=7)
@nk.diagram("n t -> n t", sizes=dict(n=4096, t=16384))
def moving_average(X, beta=0.9):
    """An exponential moving average of each row (Brown, 1956)."""
    return nk.scan(lambda h: beta * h + (1 - beta) * X, 0.0, along="t")


def _s4d(x: Numbers, a: Numbers, c: Numbers) -> Numbers:
    n = x.shape[1]
    kernel = np.einsum("dn,dnt->dt", c, np.exp(a[..., None] * np.arange(n)))
    out = np.zeros(x.shape)
    for t in range(n):
        out[:, t] = np.einsum("bsd,ds->bd", x[:, : t + 1], kernel[:, t::-1][:, : t + 1])
    return out


@compared(_s4d, ranges={"A": (-1.0, -0.1)}, b=2, t=6, d=3, n=4)
@nk.diagram("b t d, d n, d n -> b t d", sizes=dict(b=16, t=1024, d=512, n=64))
def diagonal_state_space(X, A, C):
    """A diagonal state space of constant decays, as a scan (S4D, arXiv 2206.11893)."""
    H = nk.scan(lambda h: nk.exp(A) * h + X, 0.0, along="t")
    return nk.contract(C, H, over="n")


def _fir(x: Numbers, h: Numbers) -> Numbers:
    wide = np.pad(x, [(0, 0), (len(h) - 1, 0)])
    return np.stack([np.correlate(row, h, "valid") for row in wide])


@compared(_fir, n=2, i=12, w=64)
@nk.diagram("n i, w -> n p", sizes=dict(n=512, i=65536, w=64))
def fir_filter(X, H):
    """A filter with 64 taps over long signals (Oppenheim and Schafer, chapter 6)."""
    return nk.contract(nk.slide(X, over="i", into="p w", padding=(63, 0)), H, over="w")


def _hyena(x: Numbers, h: Numbers) -> Numbers:
    out = np.zeros(x.shape)
    for t in range(x.shape[1]):
        out[:, t] = sum(h[t - s] * x[:, s] for s in range(t + 1))
    return out


@compared(lambda x, h, e: _hyena(x, h) + 0 * e, b=2, x=6, q=6, t=6, d=3)
@nk.diagram("b x d, t d, b q d -> b q d", sizes=dict(b=2, x=2048, q=2048, t=2048, d=256))
def long_convolution(X, H, E):
    """A convolution as long as the sequence, by channels (Hyena, arXiv 2302.10866)."""
    there = nk.index("q") - nk.index("x")
    weights = nk.where(there >= 0, nk.take(H, t=there), 0.0)
    return nk.reduce(weights * X, "sum", over="x") + 0.0 * E


def _delta(s: Numbers, k: Numbers, v: Numbers, b: Numbers) -> Numbers:
    seen = np.einsum("hkv,hk->hv", s, k)
    return s + np.einsum("h,hk,hv->hkv", b, k, v - seen)


@compared(_delta, h=2, k=3, v=4)
@nk.diagram("h k v, h k, h v, h -> h k v", sizes=dict(h=512, k=128, v=128))
def delta_rule_step(S, K, V, B):
    """A step of the delta rule: what a key recalls is moved to its value (arXiv 2102.11174)."""
    seen = nk.contract(S, K, over="k")
    return S + B * K * (V - seen)


def _ssm(
    x: Numbers, h: Numbers, a: Numbers, b: Numbers, c: Numbers, d: Numbers
) -> tuple[Numbers, Numbers]:
    dt = np.log1p(np.exp(d))[..., None]
    new = np.exp(-dt * np.exp(a)) * h + dt * b[:, None] * x[..., None]
    return np.einsum("bdn,bn->bd", new, c), new


@compared(_ssm, b=2, d=3, n=4)
@nk.diagram("b d, b d n, d n, b n, b n, b d -> b d, b d n", sizes=dict(b=128, d=8192, n=16))
def selective_state_step(X, H, A, B, C, D):
    """One step of Mamba in generation (arXiv 2312.00752)."""
    step = nk.log(1 + nk.exp(D))
    new = nk.exp(-step * nk.exp(A)) * H + step * B * X
    return nk.contract(new, C, over="n"), new


def _forward(p: Numbers, t: Numbers, e: Numbers) -> Numbers:
    return np.logaddexp.reduce(p[:, :, None] + t, axis=1) + e


@compared(_forward, b=2, s=4, r=5)
@nk.diagram("b s, s r, b r -> b r", sizes=dict(b=1024, s=512, r=512))
def hidden_markov_step(P, T, E):
    """A step of the forward algorithm in logarithms (Rabiner, 1989)."""
    return nk.reduce(P + T, "logsumexp", over="s") + E


def _viterbi(p: Numbers, t: Numbers, e: Numbers) -> tuple[Numbers, Numbers]:
    s = p[:, :, None] + t
    return s.max(1) + e, s.argmax(1)


@compared(_viterbi, b=2, s=4, r=5)
@nk.diagram("b s, s r, b r -> b r, b r", sizes=dict(b=1024, s=512, r=512))
def viterbi_step(P, T, E):
    """A step of Viterbi's algorithm, with what each state came from (Viterbi, 1967)."""
    S = P + T
    return nk.reduce(S, "max", over="s") + E, nk.argmax(S, over="s")


@compared(lambda r, d: stepped(0.99 * (1 - d), r), ranges={"D": (0, 1)}, n=3, t=6)
@nk.diagram("n t, n t:bool -> n t", sizes=dict(n=8192, t=2048))
def discounted_returns(R, D):
    """Discounted sums that begin again where an episode ends (Sutton and Barto, chapter 3)."""
    return nk.scan(lambda h: nk.where(D, 0.0, 0.99 * h) + R, 0.0, along="t")


@compared(lambda x: x.cumsum(), ranges={"X": (0, 1)}, n=9)
@nk.diagram("n -> n", sizes=dict(n=2**24))
def prefix_sums(X):
    """The running sum of one long row, as of counts before a scatter (Blelloch, 1990)."""
    return nk.cumsum(X, along="n")


@compared(lambda x: stepped(np.full(x.shape, 0.999), x, 0), n=9)
@nk.diagram("n -> n", sizes=dict(n=2**22))
def recursive_filter(X, pole=0.999):
    """A filter with one pole over one long signal (Oppenheim and Schafer, chapter 6)."""
    return nk.scan(lambda h: pole * h + X, 0.0, along="n")


def _lstm_layer(z: Numbers, u: Numbers) -> tuple[Numbers, Numbers]:
    def step(both: Numbers, z: Numbers) -> Numbers:
        i, f, g, o = z.transpose(1, 0, 2) + np.einsum("bd,gdm->gbm", both[0], u)
        c = sigmoid(f) * both[1] + sigmoid(i) * np.tanh(g)
        return np.stack([sigmoid(o) * np.tanh(c), c])

    h, c = states(step, np.zeros((2, *z[:, 0, 0].shape)), z, axis=2)
    return h, c


@compared(_lstm_layer, b=2, g=4, t=5, d=3, m=3)
@nk.diagram("b g t d, g d m -> b t d, b t d", sizes=dict(b=64, g=4, t=256, d=128, m=128))
def lstm_layer(Z, U):
    """An LSTM over a sequence (Hochreiter and Schmidhuber, 1997): Z is what its inputs give to the
    gates i, f, g and o."""

    def step(h, c):
        i, f, g, o = (nk.take(Z, g=n) + seen(h, n) for n in range(4))
        c = nk.sigmoid(f) * c + nk.sigmoid(i) * nk.tanh(g)
        return nk.sigmoid(o) * nk.tanh(c), c

    def seen(h, n):
        return nk.contract(h, nk.take(U, g=n), over="d").rename(m="d")

    return nk.scan(step, (0.0, 0.0), along="t", axes="d")


@compared(lambda x: np.maximum.accumulate(np.maximum(x, 0), 1) - x, n=4, t=7)
@nk.diagram("n t -> n t", sizes=dict(n=4096, t=4096))
def running_maximum(X):
    """The largest value so far, as in a drawdown: a state under a maximum."""
    return nk.scan(lambda h: nk.maximum(h, X), 0.0, along="t") - X


def _delta_rule(q: Numbers, k: Numbers, v: Numbers, b: Numbers) -> Numbers:
    start = np.zeros((len(q), k.shape[2], v.shape[2]))
    return np.einsum("htk,htkv->htv", q, states(_delta, start, k, v, b))


@compared(_delta_rule, ranges={"B": (0, 1)}, h=2, t=5, k=3, v=4)
@nk.diagram("h t k, h t k, h t v, h t -> h t v", sizes=dict(h=64, t=1024, k=64, v=64))
def delta_rule(Q, K, V, B):
    """The delta rule over a sequence (arXiv 2406.06484): a matrix that no linear step gives."""
    step = lambda S: S + B * K * (V - nk.contract(S, K, over="k"))  # noqa: E731
    return nk.contract(Q, nk.scan(step, 0.0, along="t", axes="k"), over="k")


def _kalman(m: Numbers, p: Numbers, z: Numbers) -> tuple[Numbers, Numbers]:
    p = p + 0.1
    gain = p / (p + 1.0)
    return m + gain * (z - m), (1 - gain) * p


@compared(_kalman, ranges={"P": (0.1, 2.0)}, n=9)
@nk.diagram("n, n, n -> n, n", sizes=dict(n=2**22))
def kalman_step(M, P, Z, process=0.1, noise=1.0):
    """A step of many Kalman filters of one number (Kalman, 1960)."""
    spread = P + process
    gain = spread / (spread + noise)
    return M + gain * (Z - M), (1 - gain) * spread


def _attn_pool(x: Numbers, w: Numbers, v: Numbers) -> Numbers:
    a = soft(np.tanh(x @ w) @ v, 1)
    return (a[..., None] * x).sum(1)


@compared(_attn_pool, b=2, t=5, d=4, k=3)
@nk.diagram("b t d, d k, k -> b d", sizes=dict(b=256, t=512, d=512, k=256))
def additive_pooling(X, W, V):
    """A sentence as a weighted mean of its states (hierarchical attention, Yang et al., 2016)."""
    S = nk.contract(nk.tanh(nk.contract(X, W, over="d")), V, over="k")
    return nk.reduce(nk.softmax(S, over="t") * X, "sum", over="t")


def _finch(r: Numbers, k: Numbers, v: Numbers, w: Numbers, u: Numbers) -> Numbers:
    a, b = np.exp(-np.exp(w))[..., None], k[..., None] * v[..., None, :]
    after = stepped(a, b)
    return np.einsum("htd,htde->hte", r, (after - b) / a + u[:, None, :, None] * b)


@compared(_finch, h=2, t=7, d=3, e=4)
@nk.diagram("h t d, h t d, h t e, h t d, h d -> h t e", sizes=dict(h=64, t=2048, d=64, e=64))
def finch(R, K, V, W, U):
    """RWKV-6: each output reads the state before it (arXiv 2404.05892)."""

    def before(X):
        return nk.take(X, t=nk.index("t") - 1)

    new = nk.where(nk.index("t") > 0, before(K), 0.0)
    gate = nk.exp(-nk.exp(before(W)))
    S = nk.scan(lambda s: gate * s + new * before(V), 0.0, along="t")
    return nk.contract(R, S, over="d") + nk.contract(R, U, K, over="d") * V


def _stabilised(z: Numbers, i: Numbers, f: Numbers, o: Numbers) -> Numbers:
    # The stabiliser divides both sums alike.
    gate = np.exp(f)
    return sigmoid(o) * stepped(gate, np.exp(i) * np.tanh(z)) / stepped(gate, np.exp(i))


@compared(_stabilised, b=2, t=6, d=3)
@nk.diagram("b t d, b t d, b t d, b t d -> b t d", sizes=dict(b=16, t=1024, d=1024))
def stabilised_lstm(Z, I, F, O):  # noqa: E741
    """sLSTM: exponential gates below a running maximum of their logarithms (arXiv 2405.04517)."""

    def step(c, n, m):
        top = nk.maximum(F + m, I)
        a, g = nk.exp(F + m - top), nk.exp(I - top)
        return a * c + g * nk.tanh(Z), a * n + g, top

    c, n, _ = nk.scan(step, (0.0, 0.0, -1e4), along="t", axes="b d")
    return nk.sigmoid(O) * c / n


def _chain(u: Numbers, a: Numbers) -> Numbers:
    return states(lambda m, u: lse(m[..., None] + a, 1) + u, np.zeros((len(u), len(a))), u)


@compared(_chain, b=2, t=5, s=3, r=3)
@nk.diagram("b t s, r s -> b t s", sizes=dict(b=256, t=512, s=64, r=64))
def chain_messages(U, A):
    """Messages along a chain of states, in logarithms (Pearl, 1982)."""

    def step(m):
        return nk.reduce(m.rename(s="r") + A, "logsumexp", over="r") + U

    return nk.scan(step, 0.0, along="t", axes="b s")


def _edits(a: Numbers, b: Numbers) -> Numbers:
    out = np.zeros((len(a), a.shape[1] + 1, b.shape[1] + 1))
    out[:, 0], out[:, :, 0] = np.arange(b.shape[1] + 1), np.arange(a.shape[1] + 1)
    for i, j in np.ndindex(a.shape[1], b.shape[1]):
        moved = np.minimum(out[:, i, j + 1], out[:, i + 1, j]) + 1
        out[:, i + 1, j + 1] = np.minimum(moved, out[:, i, j] + (a[:, i] != b[:, j]))
    return out[:, 1:, 1:]


@compared(_edits, ranges={"A": (0, 2), "B": (0, 2)}, n=2, t=4, s=5)
@nk.diagram("n t:int, n s:int -> n t s", sizes=dict(n=256, t=128, s=128))
def edit_distance(A, B):
    """Edits between all beginnings of two strings, a row at a time (Wagner and Fischer, 1974)."""
    j, t = nk.index("s"), nk.index("t")

    def step(row):
        left = nk.where(nk.index("r") == j - 1, row.rename(s="r"), 0.0)
        left = nk.where(j > 0, nk.reduce(left, "sum", over="r"), 1.0 * t)
        best = nk.minimum(row + 1, left + nk.where(A == B, 0.0, 1.0))
        best = nk.minimum(best, t + 2 + j) - j
        seen = nk.where(nk.index("r") <= j, best.rename(s="r"), np.inf)
        return nk.reduce(seen, "min", over="r") + j

    return nk.scan(step, 1.0 * (j + 1), along="t", axes="n s")
