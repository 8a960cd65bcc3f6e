"""Digest of many 64-bit words, 64 lanes of 64 bits, at the speed of memory: to tell matrices apart, not for
cryptography."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import light_kernel

Words = npt.NDArray[np.uint64]

LANES = 64
PRIME = np.uint64(0x00000100000001B3)


@light_kernel
def mix_words(words: Words, *, lanes: Words) -> None:
    """Mix words into the lanes of a digest, in place and in order: word i into lane ``i % 64``.

    Parameters
    ----------
    words : (n,) uint64
    lanes : (64,) uint64; written

    Notes
    -----
    Each word is a step ``lane = (lane xor word) * prime``, a bijection of the lane for every word: a change
    of one word always changes the outcome.

    References
    ----------
    Fowler, Noll, Vo, hash 1a, with words in place of bytes.
    """
    with np.errstate(over="ignore"):
        for start in range(0, len(words), LANES):
            part = words[start : start + LANES]
            lanes[: len(part)] = (lanes[: len(part)] ^ part) * PRIME
