"""Losses and scores of training, each token's or each batch's."""

from __future__ import annotations

import numpy as np
from entries import Numbers, compared, lse, rows, sigmoid, soft, unit

import napkin as nk


def log_softmax(X: nk.Array, over: str) -> nk.Array:
    """Logarithms of a softmax."""
    return X - nk.reduce(X, "logsumexp", over=over)


def softplus(X: nk.Array) -> nk.Array:
    """log(1 + exp(X)) without overflow."""
    return nk.maximum(X, 0.0) + nk.log(1 + nk.exp(-nk.abs(X)))


def logs(x: Numbers) -> Numbers:
    """As `log_softmax`, over the last axis."""
    return x - lse(x)[..., None]


def _focal(x: Numbers, y: Numbers) -> Numbers:
    p = sigmoid(x)
    right = np.where(y > 0, p, 1 - p)
    return (np.where(y > 0, 0.25, 0.75) * (1 - right) ** 2 * -np.log(right)).sum(1)


@compared(_focal, ranges={"Y": (0, 1)}, n=3, c=5)
@nk.diagram("n c, n c:bool -> n", sizes=dict(n=196416, c=80))
def focal_loss(X, Y):
    """Focal loss of the anchors of a detector (arXiv 1708.02002)."""
    p = nk.sigmoid(X)
    right = nk.where(Y, p, 1 - p)
    loss = softplus(nk.where(Y, -X, X))
    return nk.reduce(nk.where(Y, 0.25, 0.75) * (1 - right) ** 2 * loss, "sum", over="c")


def _infonce(x: Numbers, y: Numbers) -> Numbers:
    s = unit(x) @ unit(y).T / 0.07
    return (lse(s) - np.diag(s)).mean() / 2 + (lse(s.T) - np.diag(s)).mean() / 2


@compared(_infonce, slow=True, n=5, m=5, d=4)
@nk.diagram("n d, m d -> ()", sizes=dict(n=16384, m=16384, d=768))
def clip_loss(X, Y, temperature=0.07):
    """The contrastive loss of pairs of images and texts, both ways (CLIP, arXiv 2103.00020)."""
    x = X * nk.rsqrt(nk.reduce(X * X, "sum", over="d"))
    y = Y * nk.rsqrt(nk.reduce(Y * Y, "sum", over="d"))
    S = nk.contract(x, y, over="d") / temperature
    own = nk.reduce(nk.where(nk.index("n") == nk.index("m"), S, 0.0), "sum", over="n m")
    there = nk.reduce(nk.reduce(S, "logsumexp", over="m"), "sum", over="n")
    back = nk.reduce(nk.reduce(S, "logsumexp", over="n"), "sum", over="m")
    return (there + back - 2 * own) / (2 * nk.size("n"))


def _siglip(x: Numbers, y: Numbers, t: Numbers, b: Numbers) -> Numbers:
    z = 2 * np.eye(len(x)) - 1
    return np.logaddexp(0, -z * (x @ y.T * t + b)).sum() / len(x)


@compared(_siglip, n=5, m=5, d=4)
@nk.diagram("n d, m d, (), () -> ()", sizes=dict(n=8192, m=8192, d=768))
def siglip_loss(X, Y, T, B):
    """The pairwise sigmoid loss of images and texts (arXiv 2303.15343)."""
    S = nk.contract(X, Y, over="d") * T + B
    z = nk.where(nk.index("n") == nk.index("m"), -1.0, 1.0)
    return nk.reduce(softplus(z * S), "sum", over="n m") / nk.size("n")


def _kl(a: Numbers, b: Numbers) -> Numbers:
    return 4.0 * (soft(a / 2) * (logs(a / 2) - logs(b / 2))).sum(-1)


@compared(_kl, n=3, v=7)
@nk.diagram("n v, n v -> n", sizes=dict(n=8192, v=32000))
def distillation_kl(A, B, temperature=2.0):
    """The divergence of a student from its teacher at a temperature (arXiv 1503.02531)."""
    a, b = log_softmax(A / temperature, "v"), log_softmax(B / temperature, "v")
    return temperature**2 * nk.reduce(nk.exp(a) * (a - b), "sum", over="v")


def _jsd(a: Numbers, b: Numbers) -> Numbers:
    p, q = soft(a), soft(b)
    m = (p + q) / 2
    return ((p * np.log(p / m)).sum(-1) + (q * np.log(q / m)).sum(-1)) / 2


@compared(_jsd, n=3, v=7)
@nk.diagram("n v, n v -> n", sizes=dict(n=4096, v=128256))
def jensen_shannon(A, B):
    """The Jensen-Shannon divergence of two rows of logits (GKD, arXiv 2306.13649)."""
    p, q = nk.softmax(A, over="v"), nk.softmax(B, over="v")
    m = (p + q) / 2
    both = p * nk.log(p / m) + q * nk.log(q / m)
    return nk.reduce(both, "sum", over="v") / 2


def _linear_jsd(x: Numbers, w: Numbers, y: Numbers, u: Numbers) -> Numbers:
    return _jsd(x @ w.T, y @ u.T)


@compared(_linear_jsd, n=3, d=4, e=5, v=7, slow=True)
@nk.diagram("n d, v d, n e, v e -> n", sizes=dict(n=4096, d=2048, e=2048, v=32768))
def linear_jensen_shannon(X, W, Y, U):
    """The same from hidden states of a student and a teacher (Liger, arXiv 2410.10989). What is 0
    in float32 adds nothing."""
    p = nk.softmax(nk.contract(X, W, over="d"), over="v")
    q = nk.softmax(nk.contract(Y, U, over="e"), over="v")
    m = (p + q) / 2
    left, right = (nk.where(x > 0.0, x * nk.log(x / m), 0.0) for x in (p, q))
    return nk.reduce(left + right, "sum", over="v") / 2


def _dpo(a: Numbers, b: Numbers, c: Numbers, d: Numbers) -> Numbers:
    return np.logaddexp(0, -0.1 * (a.sum(1) - b.sum(1) - c.sum(1) + d.sum(1)))


@compared(_dpo, n=3, t=7)
@nk.diagram("n t, n t, n t, n t -> n", sizes=dict(n=512, t=4096))
def dpo_loss(A, B, C, D, beta=0.1):
    """Direct preference optimisation, from log-probabilities of tokens (arXiv 2305.18290)."""
    chosen = nk.reduce(A, "sum", over="t") - nk.reduce(B, "sum", over="t")
    rejected = nk.reduce(C, "sum", over="t") - nk.reduce(D, "sum", over="t")
    return softplus(-beta * (chosen - rejected))


def _logprobs(x: Numbers, w: Numbers, t: Numbers) -> Numbers:
    z = x @ w.T
    return z[np.arange(len(x)), t.astype(int)] - lse(z)


@compared(_logprobs, ranges={"T": (0, 6)}, n=3, d=4, v=7)
@nk.diagram("n d, v d, n:int -> n", sizes=dict(n=8192, d=4096, v=32000))
def token_log_probabilities(X, W, T):
    """Log-probabilities of given tokens, from hidden states (arXiv 2203.02155, section 3.5)."""
    Z = nk.contract(X, W, over="d")
    own = nk.contract(X, nk.take(W, v=T), over="d")
    return nk.cast(own - nk.reduce(Z, "logsumexp", over="v"), "fp32")


def _ppo(new: Numbers, old: Numbers, adv: Numbers, mask: Numbers) -> Numbers:
    r = np.exp(new - old)
    gain = np.minimum(r * adv, np.clip(r, 0.8, 1.2) * adv)
    return -(gain * mask).sum() / mask.sum()


@compared(_ppo, ranges={"mask": (1, 1)}, n=3, t=7)
@nk.diagram("n t, n t, n t, n t:bool -> ()", sizes=dict(n=1024, t=2048))
def clipped_policy_loss(N, O, A, mask):  # noqa: E741
    """The clipped surrogate of PPO over the tokens that count (arXiv 1707.06347)."""
    r = nk.exp(N - O)
    gain = nk.minimum(r * A, nk.minimum(nk.maximum(r, 0.8), 1.2) * A)
    many = nk.reduce(nk.cast(mask, "fp32"), "sum", over="n t")
    return -nk.reduce(nk.where(mask, gain, 0.0), "sum", over="n t") / many


def _grpo(r: Numbers) -> Numbers:
    return (r - r.mean(1, keepdims=True)) / (r.std(1, keepdims=True) + 1e-4)


@compared(_grpo, n=3, g=4)
@nk.diagram("n g -> n g", sizes=dict(n=65536, g=64))
def group_advantages(R, eps=1e-4):
    """Rewards of answers, normalised in the group of a question (GRPO, arXiv 2402.03300)."""
    mean = nk.reduce(R, "mean", over="g")
    return (R - mean) / (nk.sqrt(nk.reduce((R - mean) ** 2, "mean", over="g")) + eps)


def _gae(r: Numbers, v: Numbers, w: Numbers) -> Numbers:
    delta = r + 0.99 * w - v
    out, last = np.zeros(r.shape), np.zeros(len(r))
    for t in reversed(range(r.shape[1])):
        out[:, t] = last = delta[:, t] + 0.99 * 0.95 * last
    return out


@compared(_gae, n=3, t=7)
@nk.diagram("n t, n t, n t -> n t", sizes=dict(n=4096, t=1024))
def advantage_estimate(R, V, W, gamma=0.99, lam=0.95):
    """Generalised advantages, a sum from the end (arXiv 1506.02438). W is the value after."""
    delta = R + gamma * W - V
    last = nk.size("t") - 1
    turned = nk.take(delta, t=last - nk.index("t"))
    summed = nk.scan(lambda h: gamma * lam * h + turned, 0.0, along="t")
    return nk.take(summed, t=last - nk.index("t"))


def _huber(x: Numbers, y: Numbers) -> Numbers:
    e = np.abs(x - y)
    return np.where(e < 1, 0.5 * e * e, e - 0.5).mean(1)


@compared(_huber, n=3, d=7)
@nk.diagram("n d, n d -> n", sizes=dict(n=65536, d=1024))
def huber_loss(X, Y, delta=1.0):
    """Huber's loss of every row (Huber, 1964)."""
    e = nk.abs(X - Y)
    return nk.reduce(nk.where(e < delta, 0.5 * e * e, delta * (e - 0.5 * delta)), "mean", over="d")


def _chamfer(x: Numbers, y: Numbers) -> Numbers:
    d = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    return d.min(2).mean(1) + d.min(1).mean(1)


@compared(_chamfer, b=2, n=5, m=6, c=3)
@nk.diagram("b n c, b m c -> b", sizes=dict(b=32, n=2048, m=2048, c=3))
def chamfer_distance(X, Y):
    """The distance of two clouds of points, both ways (arXiv 1612.00603)."""
    D = nk.reduce((X - Y) ** 2, "sum", over="c")
    there = nk.reduce(nk.reduce(D, "min", over="m"), "mean", over="n")
    return there + nk.reduce(nk.reduce(D, "min", over="n"), "mean", over="m")


def _sinkhorn(x: Numbers, y: Numbers, g: Numbers) -> tuple[Numbers, Numbers]:
    cost = ((x[:, None] - y) ** 2).sum(-1)
    f = -0.1 * lse((g - cost) / 0.1 - np.log(len(y)), 1)
    return f, -0.1 * lse((f[:, None] - cost) / 0.1 - np.log(len(x)), 0)


@compared(_sinkhorn, n=5, m=6, c=3)
@nk.diagram("n c, m c, m -> n, m", sizes=dict(n=16384, m=16384, c=3))
def sinkhorn_step(X, Y, G, eps=0.1):
    """A step of both potentials of entropic transport (arXiv 1306.0895, 1803.00567)."""
    C = nk.reduce((X - Y) ** 2, "sum", over="c")
    many = nk.log(nk.cast(nk.size("m"), "fp32"))
    F = -eps * nk.reduce((G - C) / eps - many, "logsumexp", over="m")
    other = nk.log(nk.cast(nk.size("n"), "fp32"))
    return F, -eps * nk.reduce((F - C) / eps - other, "logsumexp", over="n")


def _smooth(x: Numbers, t: Numbers) -> Numbers:
    p = logs(x)
    return -0.9 * p[np.arange(len(x)), t.astype(int)] - 0.1 * p.mean(1)


@compared(_smooth, ranges={"T": (0, 6)}, n=3, v=7)
@nk.diagram("n v, n:int -> n", sizes=dict(n=8192, v=50257))
def label_smoothing(X, T, share=0.1):
    """Cross-entropy with smoothed labels (arXiv 1512.00567)."""
    P = log_softmax(X, "v")
    own = nk.reduce(nk.where(nk.index("v") == T, P, 0.0), "sum", over="v")
    return -(1 - share) * own - share * nk.reduce(P, "mean", over="v")


def _entropy_gradient(x: Numbers, t: Numbers, g: Numbers) -> Numbers:
    return (soft(x) - np.eye(x.shape[1])[t.astype(int)]) * g[:, None]


@compared(_entropy_gradient, ranges={"T": (0, 6)}, n=3, v=7)
@nk.diagram("n v, n:int, n -> n v", sizes=dict(n=8192, v=128256))
def cross_entropy_gradient(X, T, G):
    """The gradient of cross-entropy with respect to logits (arXiv 2410.10989, section 3)."""
    return (nk.softmax(X, over="v") - nk.where(nk.index("v") == T, 1.0, 0.0)) * G


def _triplet(a: Numbers, p: Numbers, n: Numbers) -> Numbers:
    return np.maximum(((a - p) ** 2).sum(1) - ((a - n) ** 2).sum(1) + 0.2, 0)


@compared(_triplet, n=3, d=5)
@nk.diagram("n d, n d, n d -> n", sizes=dict(n=65536, d=128))
def triplet_loss(A, P, N, margin=0.2):
    """The triplet loss of FaceNet (arXiv 1503.03832)."""
    near = nk.reduce((A - P) ** 2, "sum", over="d")
    return nk.maximum(near - nk.reduce((A - N) ** 2, "sum", over="d") + margin, 0.0)


def _dice(x: Numbers, y: Numbers) -> Numbers:
    p = soft(x, 1)
    return 1 - (2 * (p * y).sum((2, 3)) + 1) / (p.sum((2, 3)) + y.sum((2, 3)) + 1)


@compared(_dice, ranges={"Y": (0.0, 1.0)}, b=2, c=3, i=4, j=5)
@nk.diagram("b c i j, b c i j -> b c", sizes=dict(b=8, c=21, i=512, j=512))
def dice_loss(X, Y):
    """The soft Dice loss of a segmentation (V-Net, arXiv 1606.04797)."""
    P = nk.softmax(X, over="c")
    meet = nk.reduce(P * Y, "sum", over="i j")
    both = nk.reduce(P, "sum", over="i j") + nk.reduce(Y, "sum", over="i j")
    return 1 - (2 * meet + 1) / (both + 1)


def _vicreg(x: Numbers) -> tuple[Numbers, Numbers]:
    c = np.cov(x.T)
    spread = np.maximum(1 - np.sqrt(np.diag(c) + 1e-4), 0).mean()
    return spread, ((c**2).sum() - (np.diag(c) ** 2).sum()) / len(c)


@compared(_vicreg, n=7, d=5)
@nk.diagram("n d -> (), ()", sizes=dict(n=2048, d=8192))
def vicreg_terms(X):
    """The variance and the covariance terms of VICReg (arXiv 2105.04906)."""
    Z = X - nk.reduce(X, "mean", over="n")
    C = nk.contract(Z, Z.rename(d="e"), over="n") / (nk.size("n") - 1)
    var = nk.reduce(Z * Z, "sum", over="n") / (nk.size("n") - 1)
    spread = nk.reduce(nk.maximum(1 - nk.sqrt(var + 1e-4), 0.0), "mean", over="d")
    apart = nk.where(nk.index("d") == nk.index("e"), 0.0, C * C)
    return spread, nk.reduce(apart, "sum", over="d e") / nk.size("d")


def _z(x: Numbers) -> Numbers:
    return 1e-4 * (lse(x) ** 2).mean()


@compared(_z, n=3, e=5)
@nk.diagram("n e -> ()", sizes=dict(n=131072, e=128))
def router_z_loss(X):
    """The z-loss of a router's logits (ST-MoE, arXiv 2202.08906)."""
    return 1e-4 * nk.reduce(nk.reduce(X, "logsumexp", over="e") ** 2, "mean", over="n")


def _arcface(x: Numbers, w: Numbers, t: Numbers) -> Numbers:
    cos = unit(x) @ unit(w).T
    at = np.arange(len(x)), t.astype(int)
    own = cos[at]
    z = 64.0 * cos
    z[at] = 64.0 * (own * np.cos(0.5) - np.sqrt(1 - own**2) * np.sin(0.5))
    return lse(z) - z[at]


@compared(_arcface, slow=True, ranges={"T": (0, 6)}, n=3, d=4, v=7)
@nk.diagram("n d, v d, n:int -> n", sizes=dict(n=2048, d=512, v=85742))
def arcface_loss(X, W, T):
    """Softmax over angles with a margin on the true one (arXiv 1801.07698)."""
    x = X * nk.rsqrt(nk.reduce(X * X, "sum", over="d"))
    w = W * nk.rsqrt(nk.reduce(W * W, "sum", over="d"))
    C = nk.contract(x, w, over="d")
    far = C * np.cos(0.5) - nk.sqrt(nk.maximum(1 - C * C, 0.0)) * np.sin(0.5)
    Z = 64.0 * nk.where(nk.index("v") == T, far, C)
    own = nk.reduce(nk.where(nk.index("v") == T, Z, 0.0), "sum", over="v")
    return nk.reduce(Z, "logsumexp", over="v") - own


def _hard_negatives(a: Numbers, p: Numbers, h: Numbers) -> Numbers:
    a, p, h = unit(a), unit(p), unit(h)
    scores = np.concatenate([a @ p.T, np.einsum("nd,nkd->nk", a, h)], 1) / 0.05
    return (lse(scores) - np.diag(scores)).mean()


@compared(_hard_negatives, n=6, d=5, k=3)
@nk.diagram("n d, n d, n k d -> ()", sizes=dict(n=4096, d=768, k=7))
def dense_passage_loss(A, P, H, tau=0.05):
    """Each query's passage among those of the batch and some hard ones (arXiv 2004.04906)."""

    def unit(X):
        return X * nk.rsqrt(nk.reduce(X * X, "sum", over="d"))

    A, P, H = unit(A), unit(P), unit(H)
    S = nk.contract(A, P.rename(n="m"), over="d") / tau
    T = nk.contract(A, H, over="d") / tau
    L = nk.reduce([S, T], "logsumexp", over=["m", "k"])
    return nk.reduce(L - nk.contract(A, P, over="d") / tau, "mean", over="n")


def _supervised(z: Numbers, y: Numbers) -> Numbers:
    scores, other = unit(z) @ unit(z).T / 0.1, ~np.eye(len(z), dtype=bool)
    logits = scores - lse(np.where(other, scores, -np.inf))[:, None]
    alike = (y[:, None] == y) & other
    return -(np.where(alike, logits, 0).sum(1) / np.maximum(alike.sum(1), 1)).mean()


@compared(_supervised, ranges={"Y": (0, 2)}, n=7, d=4)
@nk.diagram("n d, n:int -> ()", sizes=dict(n=8192, d=128))
def supervised_contrastive(Z, Y, tau=0.1):
    """Contrast with all of the same class (arXiv 2004.11362)."""
    Z = Z * nk.rsqrt(nk.reduce(Z * Z, "sum", over="d"))
    S = nk.contract(Z, Z.rename(n="m"), over="d") / tau
    other = nk.index("n") != nk.index("m")
    L = nk.reduce(nk.where(other, S, -np.inf), "logsumexp", over="m")
    alike = other & (Y.rename(n="m") == Y)
    total = nk.reduce(nk.where(alike, S - L, 0.0), "sum", over="m")
    many = nk.reduce(nk.where(alike, 1.0, 0.0), "sum", over="m")
    return -nk.reduce(total / nk.maximum(many, 1.0), "mean", over="n")


def _hardest(x: Numbers, y: Numbers) -> Numbers:
    far = np.sqrt(((x[:, None] - x) ** 2).sum(-1) + 1e-6)
    same = y[:, None] == y
    most, least = np.where(same, far, -np.inf).max(1), np.where(same, np.inf, far).min(1)
    return np.maximum(most - least + 0.3, 0)


@compared(_hardest, ranges={"Y": (0, 2)}, n=9, d=4)
@nk.diagram("n d, n:int -> n", sizes=dict(n=4096, d=128))
def batch_hard_triplets(X, Y, margin=0.3):
    """The farthest of the class and the nearest of another (arXiv 1703.07737)."""
    far = nk.sqrt(nk.reduce((X - X.rename(n="m")) ** 2, "sum", over="d") + 1e-6)
    same = Y.rename(n="m") == Y
    most = nk.reduce(nk.where(same, far, -np.inf), "max", over="m")
    least = nk.reduce(nk.where(same, np.inf, far), "min", over="m")
    return nk.maximum(most - least + margin, 0.0)


def _twins(a: Numbers, b: Numbers) -> Numbers:
    c = rows(a, axis=0).T @ rows(b, axis=0) / len(a)
    return ((1 - np.diag(c)) ** 2).sum() + 0.005 * ((c * c).sum() - (np.diag(c) ** 2).sum())


@compared(_twins, n=9, d=4)
@nk.diagram("n d, n d -> ()", sizes=dict(n=2048, d=8192))
def barlow_twins(A, B):
    """The cross-correlation of two views, held to the identity (arXiv 2103.03230)."""

    def scaled(X):
        mean = nk.reduce(X, "mean", over="n")
        return (X - mean) * nk.rsqrt(nk.reduce((X - mean) ** 2, "mean", over="n") + 1e-5)

    C = nk.contract(scaled(A), scaled(B).rename(d="e"), over="n") / nk.size("n")
    on = nk.index("d") == nk.index("e")
    return nk.reduce(nk.where(on, (1 - C) ** 2, 0.005 * C * C), "sum", over="d e")


def _paths(p: Numbers, y: Numbers) -> Numbers:
    def step(a: Numbers, scores: Numbers) -> Numbers:
        one = np.pad(a, ((0, 0), (1, 0)), constant_values=-30.0)[:, :-1]
        two = np.pad(a, ((0, 0), (2, 0)), constant_values=-30.0)[:, :-2]
        return lse(np.stack([a, one, np.where(skip, two, -30.0)], -1)) + scores

    skip = np.pad(y[:, 2:] != y[:, :-2], ((0, 0), (2, 0)))
    state = np.broadcast_to(np.where(np.arange(y.shape[1]) < 2, 0.0, -30.0), y.shape)
    found = []
    for t in range(p.shape[1]):
        state = step(state, np.take_along_axis(p[:, t], y.astype(int), 1))
        found.append(state)
    return np.stack(found, 1)


@compared(_paths, ranges={"Y": (0, 4)}, b=2, t=5, v=5, s=5)
@nk.diagram("b t v, b s:int -> b t s", sizes=dict(b=64, t=512, v=64, s=64))
def connectionist_paths(P, Y, least=-30.0):
    """Forward sums over alignments of labels with blanks between (Graves et al., 2006)."""
    s = nk.index("s")
    skip = (s >= 2) & (nk.take(Y, s=s - 2) != Y)
    scores = nk.take(P, v=Y)

    def step(a):
        def before(k):
            here = nk.index("r") == s - k
            return nk.reduce(nk.where(here, a.rename(s="r") - least, 0.0), "sum", over="r") + least

        one, two = before(1), nk.where(skip, before(2), least)
        top = nk.maximum(nk.maximum(a, one), two)
        return top + nk.log(nk.exp(a - top) + nk.exp(one - top) + nk.exp(two - top)) + scores

    return nk.scan(step, nk.where(s < 2, 0.0, least), along="t", axes="b s")
