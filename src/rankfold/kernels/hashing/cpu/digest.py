"""Digest of words, compiled, with lanes in registers. See ``kernels/hashing/digest.py``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain
from rankfold.kernels.hashing.digest import LANES, PRIME

Words = npt.NDArray[np.uint64]


@compile_loop
def _mix(words: Words, lanes: Words) -> None:
    whole = words.shape[0] // LANES
    for row in range(whole):
        for j in range(LANES):
            lanes[j] = (lanes[j] ^ words[row * LANES + j]) * PRIME
    for j in range(words.shape[0] - whole * LANES):
        lanes[j] = (lanes[j] ^ words[whole * LANES + j]) * PRIME


def mix_words(words: Words, *, lanes: Words) -> None:
    """See the contract; no scratch. Mixes words into the lanes of a digest."""
    _mix(plain(words), lanes)
