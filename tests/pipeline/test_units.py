"""Sizes as people type them."""

from __future__ import annotations

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.units import parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1G", 2**30),
        ("2g", 2**31),
        ("500M", 500 * 2**20),
        ("1.5T", 3 * 2**39),
        ("64 k", 2**16),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("7B", 7),
        (4096, 4096),
    ],
    ids=str,
)
def test_one_letter_is_binary_as_in_slurm(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["2", " 4096 ", "0.5"])
def test_a_number_without_a_unit_is_refused_with_both_that_are_likely(text: str) -> None:
    number = text.strip()
    with pytest.raises(InputError, match=f"has no unit: write {number}GiB or {number}MiB"):
        parse_bytes(text)
    with pytest.raises(InputError, match="has no unit"):
        rf.plan("svd", np.eye(9), 2, memory=text)


@pytest.mark.parametrize("text", ["much", "", "1GG", "-1G", "1 gigs", [], None, 1j], ids=repr)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(InputError, match="is not a size in bytes"):
        parse_bytes(text)  # type: ignore[arg-type]
