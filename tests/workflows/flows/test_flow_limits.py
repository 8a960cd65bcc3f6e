"""Workflows that nobody writes by hand are refused at once, or understood in little time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rankfold.pipeline.errors import InputError
from rankfold.workflows.flows.flow_file import read_flow
from rankfold.workflows.flows.graph import steps_of

HEAD = "workflow: w\ninputs:\n  x: x.zarr\noutputs: results\nstages:\n"
STAGE = "  s{number}:\n    method: pca\n    input: x\n    rank: 2\n    needs: [{needs}]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "flow.yaml"
    path.write_text(text)
    return path


def chain(length: int, width: int = 1) -> str:
    """Stages of which each needs those of the layer before, ``width`` in each."""
    stages = []
    for number in range(length):
        layer = number // width
        needs = range((layer - 1) * width, layer * width) if layer else ()
        stages.append(STAGE.format(number=number, needs=", ".join(f"s{n}" for n in needs)))
    return HEAD + "".join(stages)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "".join(f"key{number}: 1\n" for number in range(900_000)),
            "holds .* bytes, and a workflow at most 262144",
        ),
        ("a: " + "[" * 5000 + "]" * 5000, ":1: keys and lists are nested too deep"),
        (
            "a:\n" + "".join(" " * n + "b:\n" for n in range(1, 400)),
            ":33: keys and lists are nested too deep",
        ),
        ("{a: " * 50 + "1" + "}" * 50, ":1: keys and lists are nested too deep"),
        (chain(1200), "stages: there are 1200, and at most 256 are run"),
    ],
    ids=["keys", "lists", "indented", "mappings", "stages"],
)
def test_what_is_too_large_or_too_deep_is_one_line_at_once(tmp_path: Path, text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match=message) as raised:
        read_flow(written(tmp_path, text))
    assert time.process_time() - began < 10
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("width", [1, 4])
def test_long_chains_and_many_ways_are_understood(tmp_path: Path, width: int) -> None:
    """Four stages in each of 60 layers make 4^60 ways from the last to the first."""
    began = time.process_time()
    flow, document = read_flow(written(tmp_path, chain(240, width)))
    assert len(steps_of(flow, document)) == 240
    assert time.process_time() - began < 10


def test_a_long_circle_is_told(tmp_path: Path) -> None:
    text = chain(200).replace("needs: []", "needs: [s199]")
    with pytest.raises(InputError, match="waits for itself: s0 needs s199, s199 needs s198"):
        steps_of(*read_flow(written(tmp_path, text)))
