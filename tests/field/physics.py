"""Forces, stencils, lattices and statistics of physics and chemistry."""

from __future__ import annotations

import math

import numpy as np
from entries import Numbers, compared, taken

import napkin as nk


def _gravity(x: Numbers, y: Numbers, m: Numbers) -> Numbers:
    d = y[None] - x[:, None]
    r = (d * d).sum(-1) + 0.01
    return np.einsum("ijc,ij,j->ic", d, r**-1.5, m)


@compared(_gravity, i=5, j=7, c=3)
@nk.diagram("i c, j c, j -> i c", sizes=dict(i=16384, j=16384, c=3))
def gravity(X, Y, M, soft=0.01):
    """Accelerations of bodies by all bodies, softened (GPU Gems 3, chapter 31)."""
    D = Y - X
    r = nk.rsqrt(nk.reduce(D * D, "sum", over="c") + soft)
    return nk.reduce(D * (M * r * r * r), "sum", over="j")


def _lennard(x: Numbers, y: Numbers) -> Numbers:
    d = x[:, None] - y[None]
    r = (d * d).sum(-1)
    s = np.where(r > 0, 1 / np.maximum(r, 1e-3), 0) ** 3
    return np.where((r > 0) & (r < 6.25), 4 * (s * s - s), 0).sum(1) / 2


@compared(_lennard, ranges={"X": (0.0, 8.0), "Y": (0.0, 8.0)}, i=6, j=7, c=3)
@nk.diagram("i c, j c -> i", sizes=dict(i=8192, j=8192, c=3))
def lennard_jones(X, Y):
    """Energies of atoms within a cutoff of 2.5 (Lennard-Jones, 1924; Allen and Tildesley)."""
    r = nk.reduce((X - Y) ** 2, "sum", over="c")
    s = nk.where(r > 0, 1 / nk.maximum(r, 1e-3), 0.0) ** 3
    near = (r > 0) & (r < 6.25)
    return nk.reduce(nk.where(near, 4 * (s * s - s), 0.0), "sum", over="j") / 2


def _neighbours(x: Numbers, i: Numbers) -> Numbers:
    d = taken(x, i) - x[:, None]
    r = (d * d).sum(-1) + 1.0
    return (d * (r**-4 - r**-7)[..., None]).sum(1)


@compared(_neighbours, i=6, s=3, c=3)
@nk.diagram("i c, i s:int -> i c", sizes=dict(i=1048576, s=64, c=3))
def neighbour_list_forces(X, L):
    """Forces from a list of neighbours for each atom (Verlet, 1967), softened by 1."""
    D = nk.take(X, i=L) - X
    r = nk.reduce(D * D, "sum", over="c") + 1.0
    inverse = 1 / r
    fourth = inverse * inverse * inverse * inverse
    return nk.reduce(D * (fourth - fourth * inverse * inverse * inverse), "sum", over="s")


def _coulomb(q: Numbers, x: Numbers, p: Numbers, y: Numbers) -> Numbers:
    d = np.sqrt(((x[:, None] - y) ** 2).sum(-1) + 1e-2)
    erfc = np.vectorize(math.erfc)(0.5 * d)
    return q * (p * erfc / d).sum(1)


@compared(_coulomb, i=5, j=6, c=3)
@nk.diagram("i, i c, j, j c -> i", sizes=dict(i=8192, j=8192, c=3))
def ewald_real_space(Q, X, P, Y):
    """The part of an Ewald sum in real space, softened (Ewald, 1921)."""
    d = nk.sqrt(nk.reduce((X - Y) ** 2, "sum", over="c") + 1e-2)
    return Q * nk.reduce(P * (1 - nk.erf(0.5 * d)) / d, "sum", over="j")


def _structure(q: Numbers, x: Numbers, k: Numbers) -> tuple[Numbers, Numbers]:
    angle = x @ k.T
    return q @ np.cos(angle), q @ np.sin(angle)


@compared(_structure, i=6, c=3, k=5)
@nk.diagram("i, i c, k c -> k, k", sizes=dict(i=32768, c=3, k=4096))
def structure_factors(Q, X, K):
    """Sums of charges times waves, the other part of an Ewald sum (Ewald, 1921)."""
    angle = nk.contract(X, K, over="c")
    real = nk.reduce(Q * nk.cos(angle), "sum", over="i")
    return real, nk.reduce(Q * nk.sin(angle), "sum", over="i")


def _heat(t: Numbers) -> Numbers:
    w = np.pad(t, 1)
    near = w[:-2, 1:-1] + w[2:, 1:-1] + w[1:-1, :-2] + w[1:-1, 2:]
    return t + 0.1 * (near - 4 * t)


@compared(_heat, p=5, q=6)
@nk.diagram("p q -> p q", sizes=dict(p=8192, q=8192))
def heat_step(T, rate=0.1):
    """An explicit step of the heat equation, cold outside (Courant, Friedrichs and Lewy, 1928)."""
    p, q = nk.index("p"), nk.index("q")

    def at(down: int, right: int) -> nk.Array:
        i, j = p + down, q + right
        inside = (i >= 0) & (i < nk.size("p")) & (j >= 0) & (j < nk.size("q"))
        return nk.where(inside, nk.take(T, p=i, q=j), 0.0)

    near = at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)
    return T + rate * (near - 4 * T)


def _wave(u: Numbers, v: Numbers, w: Numbers) -> Numbers:
    wide = np.pad(u, [(0, 0), (2, 2)])
    near = sum(w[k] * wide[:, k : k + u.shape[1]] for k in range(5))
    return 2 * u - v + 0.25 * near


@compared(_wave, n=2, p=7, w=5)
@nk.diagram("n p, n p, w -> n p", sizes=dict(n=4096, p=16384, w=5))
def wave_step(U, V, W):
    """A step of the wave equation by a stencil of the 4th order (Fornberg, 1988)."""
    seen = nk.slide(U.rename(p="i"), over="i", into="p w", padding=2)
    return 2 * U - V + 0.25 * nk.contract(seen, W, over="w")


def _periodic(s: Numbers) -> Numbers:
    near = sum(np.roll(s, d, a) for a in (1, 2) for d in (1, -1))
    return -(s * near).sum((1, 2)) / 2


@compared(_periodic, n=2, p=4, q=5)
@nk.diagram("n p q -> n", sizes=dict(n=1024, p=256, q=256))
def ising_energy(S):
    """Energies of periodic lattices of spins (Ising, 1925)."""
    p, q = nk.index("p"), nk.index("q")
    n, m = nk.size("p"), nk.size("q")
    near = nk.take(S, p=(p + 1) % n) + nk.take(S, p=(p + n - 1) % n)
    near = near + nk.take(S, q=(q + 1) % m) + nk.take(S, q=(q + m - 1) % m)
    return -nk.reduce(S * near, "sum", over="p q") / 2


def _jacobi(u: Numbers, f: Numbers) -> tuple[Numbers, Numbers]:
    w = np.pad(u, 1)
    near = sum(
        np.roll(w, d, a)[1:-1, 1:-1, 1:-1] for a in (0, 1, 2) for d in (1, -1)
    )  # fmt: skip
    new = (near - f) / 6
    return new, np.abs(new - u).max()


@compared(_jacobi, p=4, q=5, r=6)
@nk.diagram("p q r, p q r -> p q r, ()", sizes=dict(p=256, q=256, r=256))
def jacobi_step(U, F):
    """A step of Jacobi's method for Poisson's equation, and how much it moved (Saad, chapter 4)."""
    at = {"p": nk.index("p"), "q": nk.index("q"), "r": nk.index("r")}
    parts = []
    for axis, i in at.items():
        for step in (1, -1):
            inside = (i + step >= 0) & (i + step < nk.size(axis))
            parts.append(nk.where(inside, nk.take(U, **{axis: i + step}), 0.0))
    new = (sum(parts[1:], parts[0]) - F) / 6
    return new, nk.reduce(nk.abs(new - U), "max", over="p q r")


def _lbm(f: Numbers, e: Numbers, w: Numbers) -> Numbers:
    rho = f.sum(0)
    u = np.einsum("kn,kc->cn", f, e) / rho
    eu = np.einsum("kc,cn->kn", e, u)
    equal = w[:, None] * rho * (1 + 3 * eu + 4.5 * eu**2 - 1.5 * (u * u).sum(0))
    return f - 0.6 * (f - equal)


@compared(_lbm, ranges={"F": (0.5, 1.5)}, k=9, n=6, c=2)
@nk.diagram("k n, k c, k -> k n", sizes=dict(k=9, n=4194304, c=2))
def lattice_boltzmann_collision(F, E, W):
    """The collision of D2Q9 (Bhatnagar, Gross and Krook, 1954)."""
    rho = nk.reduce(F, "sum", over="k")
    u = nk.contract(F, E, over="k") / rho
    eu = nk.contract(E, u, over="c")
    equal = W * rho * (1 + 3 * eu + 4.5 * eu * eu - 1.5 * nk.reduce(u * u, "sum", over="c"))
    return F - 0.6 * (F - equal)


def _verlet(x: Numbers, v: Numbers, f: Numbers, g: Numbers, m: Numbers) -> tuple[Numbers, Numbers]:
    m = m[:, None]
    return x + 0.01 * v + 5e-5 * f / m, v + 5e-3 * (f + g) / m


@compared(_verlet, ranges={"M": (1.0, 2.0)}, n=5, c=3)
@nk.diagram("n c, n c, n c, n c, n -> n c, n c", sizes=dict(n=2**22, c=3))
def velocity_verlet(X, V, F, G, M, dt=0.01):
    """A step of positions and velocities (Swope et al., 1982); G is the force after it."""
    return X + dt * V + 0.5 * dt**2 * F / M, V + 0.5 * dt * (F + G) / M


def _langevin(x: Numbers, f: Numbers, z: Numbers) -> Numbers:
    return x + 0.01 * f + math.sqrt(0.02) * z


@compared(_langevin, n=5, c=3)
@nk.diagram("n c, n c, n c -> n c", sizes=dict(n=2**22, c=4))
def langevin_step(X, F, Z, dt=0.01):
    """An overdamped Langevin step, with noise that is given (Ermak and McCammon, 1978)."""
    return X + dt * F + (2 * dt) ** 0.5 * Z


def _correlation(v: Numbers) -> Numbers:
    n = v.shape[1]
    return np.stack([(v[:, : n - 7] * v[:, k : n - 7 + k]).mean((0, 1)).sum() for k in range(8)])


@compared(_correlation, n=3, i=12, c=3)
@nk.diagram("n i c -> w", sizes=dict(n=4096, i=4103, c=3, w=8))
def velocity_autocorrelation(V):
    """The correlation of velocities with those 0 to 7 steps later (Rahman, 1964)."""
    later = nk.slide(V, over="i", into="p w", window=8)
    total = nk.reduce(later * nk.take(later, w=0), "sum", over="n p c")
    return total / (nk.size("n") * nk.size("p"))


def _ham(h: Numbers, psi: Numbers) -> Numbers:
    out = np.einsum("nij,nj->ni", h, psi)
    return np.einsum("ni,ni->n", psi, out) / np.einsum("ni,ni->n", psi, psi)


@compared(_ham, n=3, i=5, j=5)
@nk.diagram("n i j, n j -> n", sizes=dict(n=256, i=1024, j=1024))
def rayleigh_quotient(H, P):
    """Energies of states under matrices of their own (Rayleigh, 1877)."""
    mine = P.rename(j="i")
    return nk.contract(mine, H, P, over="i j") / nk.reduce(P * P, "sum", over="j")


def _schnet(x: Numbers, i: Numbers, f: Numbers, w: Numbers) -> Numbers:
    d = np.sqrt(((taken(x, i) - x[:, None]) ** 2).sum(-1) + 1e-6)
    rbf = np.exp(-10.0 * (d[..., None] - 0.1 * np.arange(len(w))) ** 2)
    return (taken(f, i) * (rbf @ w)).sum(1)


@compared(_schnet, n=5, s=3, c=3, f=4, k=6)
@nk.diagram("n c, n s:int, n f, k f -> n f", sizes=dict(n=65536, s=32, c=3, f=64, k=64))
def continuous_filter_conv(X, L, F, W):
    """Filters of distances over neighbours (SchNet, arXiv 1706.08566)."""
    d = nk.sqrt(nk.reduce((nk.take(X, n=L) - X) ** 2, "sum", over="c") + 1e-6)
    far = d - 0.1 * nk.index("k")
    rbf = nk.exp(-10.0 * far * far)
    return nk.reduce(nk.take(F, n=L) * nk.contract(rbf, W, over="k"), "sum", over="s")


def _rdf(x: Numbers, y: Numbers) -> Numbers:
    d = np.sqrt(((x[:, None] - y) ** 2).sum(-1))
    return np.stack([((d >= 0.5 * k) & (d < 0.5 * k + 0.5)).sum() for k in range(6)])


@compared(lambda x, y, e: _rdf(x, y) + 0 * e, i=7, j=8, c=3, k=6)
@nk.diagram("i c, j c, k -> k", sizes=dict(i=8192, j=8192, c=3, k=64))
def pair_distances(X, Y, E):
    """A histogram of distances, before its division by shells (Allen and Tildesley, 2.6)."""
    d = nk.sqrt(nk.reduce((X - Y) ** 2, "sum", over="c"))
    low = 0.5 * nk.index("k")
    return nk.reduce(nk.where((d >= low) & (d < low + 0.5), 1.0, 0.0), "sum", over="i j") + 0 * E


def _sph(x: Numbers, y: Numbers, m: Numbers) -> Numbers:
    q = np.sqrt(((x[:, None] - y) ** 2).sum(-1))
    w = np.where(q < 1, 1 - 1.5 * q**2 + 0.75 * q**3, np.where(q < 2, 0.25 * (2 - q) ** 3, 0))
    return (m * w).sum(1) / math.pi


@compared(_sph, i=5, j=7, c=3)
@nk.diagram("i c, j c, j -> i", sizes=dict(i=16384, j=16384, c=3))
def smoothed_density(X, Y, M):
    """Densities by a cubic spline (smoothed particles, Monaghan, 1992)."""
    q = nk.sqrt(nk.reduce((X - Y) ** 2, "sum", over="c"))
    inner, outer = 1 - 1.5 * q * q + 0.75 * q * q * q, 0.25 * (2 - q) ** 3
    w = nk.where(q < 1, inner, nk.where(q < 2, outer, 0.0))
    return nk.reduce(M * w, "sum", over="j") / math.pi


def _born(v: Numbers, p: Numbers) -> Numbers:
    return np.einsum("bi,bj,ij->b", v, v, p) / 2


@compared(_born, b=3, i=5, j=5)
@nk.diagram("b i, i j -> b", sizes=dict(b=4096, i=2048, j=2048))
def quadratic_potential(V, P):
    """Energies of vectors in one harmonic potential (Born and Huang, 1954)."""
    return nk.contract(V, P, V.rename(i="j"), over="i j") / 2


def _kuramoto(a: Numbers, w: Numbers) -> Numbers:
    return w + np.sin(a[None] - a[:, None]).mean(1)


@compared(_kuramoto, n=6)
@nk.diagram("n, n -> n", sizes=dict(n=16384))
def kuramoto(A, W):
    """Phases of coupled oscillators (Kuramoto, 1975): the sine of each difference, as written."""
    other = A.rename(n="m")
    return W + nk.reduce(nk.sin(other - A), "mean", over="m")


def _moments(f: Numbers, a: Numbers, b: Numbers) -> tuple[Numbers, ...]:
    steps = zip(f, a.astype(int), b.astype(int), strict=True)
    moved = np.stack([np.roll(x, (u, v), (0, 1)) for x, u, v in steps])
    density = moved.sum(0)
    return density, np.einsum("kij,k->ij", moved, a), np.einsum("kij,k->ij", moved, b)


@compared(_moments, ranges={"A": (-1, 1), "B": (-1, 1)}, k=9, i=4, j=5)
@nk.diagram("k i j, k:int, k:int -> i j, i j, i j", sizes=dict(k=9, i=2048, j=2048))
def lattice_boltzmann_streaming(F, A, B):
    """Density and momenta after populations move, on a torus (Qian et al., 1992)."""
    F = nk.take(F, i=(nk.index("i") - A) % nk.size("i"), j=(nk.index("j") - B) % nk.size("j"))
    return nk.reduce(F, "sum", over="k"), nk.contract(F, A, over="k"), nk.contract(F, B, over="k")
