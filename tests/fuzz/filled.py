"""The numbers that a program's inputs hold, drawn from a seed for any sizes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from programs import Input, Program

INT32 = (-(2**31), 2**31 - 1)
BIG = (-9000, 9000)
"""Whole numbers of which a sum of products passes 2^24, and stays below 2^31."""

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}


def arrays(program: Program, sizes: Mapping[str, int], seed: int) -> list[np.ndarray]:
    """An array for every input."""
    return [array(i, sizes, source(i, seed)) for i in program.inputs]


def source(given: Input, seed: int) -> np.random.Generator:
    """What the numbers of one input are drawn from, whatever other inputs there are."""
    return np.random.default_rng([seed, zlib.crc32(given.name.encode())])


def array(given: Input, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    """The numbers of one input, as its `fill` says: a word, and behind a colon an axis or number.

    places:a are positions along an axis, one past either end among them; lengths:a are of documents
    along it; blocks:a:n numbers of blocks of n keys.
    """
    shape = [sizes[a] for a in given.axes]
    how, *more = given.fill.split(":")
    if given.kind == "bool":
        return rng.integers(0, 2, size=shape).astype(bool)
    if how == "places":
        return rng.integers(-1, sizes[more[0]] + 1, size=shape)
    if how == "lengths":
        return _lengths(shape, sizes[more[0]], rng)
    if how == "blocks":
        return rng.integers(-1, -(-sizes[more[0]] // int(more[1])), size=shape)
    if given.kind == "int":
        own = RANGES.get(given.storage, (-3, 4))
        low, high = {"vast": INT32, "big": BIG}.get(how, own)
        return rng.integers(low, high + 1, size=shape)
    x = _reals(how, shape, rng)
    return _strewn(x, given.strewn, rng) if given.strewn else x


def _lengths(shape: list[int], keys: int, rng: np.random.Generator) -> np.ndarray:
    cuts = np.sort(rng.integers(0, keys + 1, size=(*shape[:-1], shape[-1] + 1)))
    return np.diff(cuts)


def _strewn(x: np.ndarray, among: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Values of which some, or whole lines of some axes, are numbers of `among`."""
    lines = [n if rng.random() < 0.7 else 1 for n in x.shape]
    where = rng.random(lines) < rng.choice([0.1, 0.3, 0.6])
    return np.where(where, rng.choice(among, size=lines), x)


def _reals(how: str, shape: list[int], rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=shape)
    if how == "positive":
        return np.abs(x) + 0.2
    if how == "mean":  # many deviations from zero
        return x + 1000.0 * rng.choice([-1, 1])
    if how == "large":  # beyond what an exponential holds, but of a difference
        return x * 300.0
    if how == "repeated":
        return rng.choice([-1.0, 0.0, 0.5, 2.0], size=shape)
    if how == "zeros":
        return np.where(rng.random(shape) < 0.5, 0.0, x) * rng.choice([-1.0, 1.0], size=shape)
    if how == "mask":  # what is added to scores
        return np.where(rng.random(shape) < 0.4, -math.inf, 0.0)
    if how == "fp8":
        return np.round(x * 4) / 4
    return x
