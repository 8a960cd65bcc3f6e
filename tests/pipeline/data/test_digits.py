"""Whole numbers that float64 rounds are found wherever they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankfold.pipeline.data.dtypes import require_digits
from rankfold.pipeline.errors import DataError


@example(numbers=[0, 2**53 + 1, 2**54], dtype="int64")
@example(numbers=[-(2**63), 2**62], dtype="int64")
@example(numbers=[2**63, 2**64 - 2**11], dtype="uint64")
@given(
    numbers=st.lists(
        st.builds(lambda high, low: high + low, st.sampled_from([0, 2**53, 2**54, 2**62]), st.integers(0, 9)),
        min_size=1,
    ),
    dtype=st.sampled_from(["int64", "uint64", "object"]),
)
def test_a_rounded_number_is_found_between_any_others(numbers: list[int], dtype: str) -> None:
    lost = {each for each in numbers if int(float(each)) != each}
    if not lost:
        require_digits("x", np.array(numbers, dtype))
        return
    with pytest.raises(DataError, match=f"such as ({'|'.join(map(str, lost))}), which"):
        require_digits("x", np.array(numbers, dtype))
