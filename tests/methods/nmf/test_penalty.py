"""What solvers take for a penalty is its slope, whichever of the factors is penalized."""

from __future__ import annotations

import numpy as np
import pytest

from rankfold.methods.nmf.alternation import Penalty, Sizes, penalty, weights

SOME, NONE = Penalty(0.3, 0.7), Penalty()


@pytest.mark.parametrize(
    ("own", "other"),
    [(SOME, Penalty(0.2, 0.9)), (SOME, NONE), (NONE, SOME), (NONE, NONE)],
    ids=["both", "its own", "the other", "none"],
)
def test_weights_are_the_slope_of_the_penalty(own: Penalty, other: Penalty) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((6, 3)) + 0.1, rng.random((5, 3)) + 0.1
    linear, diagonal = weights(own, other, Sizes.of(a), Sizes.of(b))
    step = 1e-6
    for place in np.ndindex(a.shape):
        costs = []
        for sign in (-1, 1):
            moved = a.copy()
            moved[place] += sign * step
            costs.append(penalty(own, other, Sizes.of(moved), Sizes.of(b)))
        slope = (costs[1] - costs[0]) / (2 * step)
        # Of a central difference: rounding of the cost over the step, and third derivatives times its square.
        assert slope == pytest.approx(linear[place[1]] + diagonal[place[1]] * a[place], rel=1e-7, abs=1e-7)
