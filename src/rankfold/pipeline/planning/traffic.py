"""Bytes that workers must at least exchange for a product of matrices, and bytes that they send here.

For a product of dimensions a >= b >= c on P workers, each must receive, beyond its share of the operands and
of the result, at least

    D - (ab + ac + bc) / P words,  D = (ab + ac) / P + bc            up to P = a / b       (1-D)
                                       2 (a b c^2 / P)^(1/2) + ab / P    up to P = ab / c^2    (2-D)
                                       3 (a b c / P)^(2/3)               beyond                (3-D)

after Al Daas, Ballard, Grigori, Kumar, Rouse, Tight memory-independent parallel matrix multiplication
communication lower bounds, SPAA 2022.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one worker sends in one pass, and the least that it could."""

    regime: str
    """``"1-D"``, ``"2-D"`` or ``"3-D"``: the grid of workers that would send least."""

    sends_bytes: int
    least_bytes: int

    def __str__(self) -> str:
        if not self.sends_bytes:
            return f"{self.regime}, nothing is sent"
        ratio = self.sends_bytes / max(self.least_bytes, 1)
        return f"{self.regime}, a worker sends {ratio:.3g} times the least there is"


def least_words(dimensions: tuple[int, int, int], workers: int) -> tuple[str, float]:
    """Regime of a product, ``"1-D"``, ``"2-D"`` or ``"3-D"``, and fewest words that a worker must receive.

    ``dimensions`` are the three lengths of the product: rows, columns, and the axis that is summed over.

    >>> least_words((1_000_000, 1000, 10), 4)
    ('1-D', 7500.0)
    >>> least_words((1000, 1000, 10), 4)[0]
    '2-D'
    """
    c, b, a = sorted(dimensions)
    if workers <= a / b:
        regime, words = "1-D", (a * b + a * c) / workers + b * c
    elif workers <= a * b / c**2:
        regime, words = "2-D", 2 * (a * b * c**2 / workers) ** 0.5 + a * b / workers
    else:
        regime, words = "3-D", 3 * (a * b * c / workers) ** (2 / 3)
    return regime, max(words - (a * b + a * c + b * c) / workers, 0.0)


def panel_traffic(long: int, short: int, rank: int, workers: int) -> Traffic:
    """Traffic of a pass over panels of a matrix (long, short), multiplied by a factor (short, rank).

    Each worker gets the factor, and sends back sums of its size, in words of 8 bytes.
    """
    regime, words = least_words((long, short, rank), workers)
    message_bytes = short * rank if workers > 1 else 0
    return Traffic(regime, 2 * 8 * message_bytes, int(2 * 8 * words))
