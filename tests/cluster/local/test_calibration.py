"""Rates of the machine that are kept for the next time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankfold.cluster.local import calibration
from rankfold.pipeline.planning.seconds import Rates


@pytest.mark.parametrize(
    "kept", ["", "{", "[]", '{"KEY": 7}', '{"KEY": [1, 2]}', '{"KEY": ["a", "b", "c", "d"]}']
)
def test_rates_that_are_no_rates_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = Rates(1e9, 2e9, 3e9, 4.0)
    monkeypatch.setattr(calibration, "measure_rates", lambda: measured)
    path = tmp_path / "rankfold" / "rates.json"
    path.parent.mkdir()
    calibration.cached_rates()
    (key,) = json.loads(path.read_text())
    path.write_text(kept.replace("KEY", key))
    assert calibration.cached_rates() == measured
    assert json.loads(path.read_text())[key] == [1e9, 2e9, 3e9, 4.0]
