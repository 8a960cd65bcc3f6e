"""What commands advise, in options, is tried; see ``tests/api/test_remedies.py`` for functions."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from command_line import rankfold

NAMED = re.compile(r"--([a-z-]+)(?: ('[^']*'|\d\w*)|(?=,))")
"""Options that a message names with a value, or that are flags."""

COMMANDS = {
    "rank": ("pca", "x.npy", "--rank", 9, "--out", "r.zarr"),
    "memory": ("pca", "x.npy", "--rank", 2, "--memory", "1MiB", "--out", "r.zarr"),
    "passes": ("svd", "x.npy", "--rank", 2, "--solver", "gram", "--passes", 1, "--out", "r.zarr"),
    "numeric": ("pca", "t.csv", "--rank", 1, "--out", "r.zarr"),
    "without": ("import", "t.csv", "z.zarr"),
}
"""Commands that are refused, by an option that helps."""


@pytest.mark.parametrize("option", COMMANDS)
def test_an_option_that_a_refusal_names_gets_further(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((40, 6)))
    Path("t.csv").write_text("a,b,c\n1,2,oak\n3,5,elm\n4,4,ash\n")
    run = rankfold(*COMMANDS[option])
    assert run.exit_code in (2, 3, 4) and "=" not in run.stderr.partition(": ")[2], run.stderr
    found = [(name, value.strip("'")) for name, value in NAMED.findall(run.stderr)]
    assert option in dict(found), run.stderr
    value = dict(found)[option]
    again = rankfold(*COMMANDS[option], f"--{option}", *([value] if value else []))
    assert again.exit_code == 0, again.stderr


def test_names_of_columns_with_commas_stand_in_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text('"a,b",c,"d, e"\n1,2,oak\n3,5,elm\n')
    run = rankfold("import", "t.csv", "x.zarr")
    assert """--without '"d, e"'""" in run.stderr
    for number, options in enumerate((("--without", '"d, e"'), ("--columns", '"a,b", c'))):
        run = rankfold("import", "t.csv", f"y{number}.zarr", *options)
        assert run.exit_code == 0 and ": 2 x 2 " in run.stdout, run.stderr
