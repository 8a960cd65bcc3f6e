"""What holds of every method, whatever it computes: its line in ``laws.py`` is all that a method adds."""

from __future__ import annotations

import functools
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stand_in
from conftest import missing_device
from laws import LAWS, TOY, Law, matrix, store
from reference import same_bytes
from result_format import dimensions, require_format, validators
from stand_in import ON_PATH

import rankfold as rf
from rankfold.methods.parts.outputs import LAWS as OUTPUTS
from rankfold.methods.registry import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


ON_DEVICE = [
    name
    for name in LAWS
    if name not in ("svd by lanczos", "knn of points", "knn of sets", "knn by partitions")
    and "radius" not in name
    and "index" not in name
    and "weights" not in name
    and "kmeans" not in name
    and "graph" not in name
    and "umap" not in name
    and "tsne" not in name
    and "isomap" not in name
    and "kernel_pca" not in name
    and "nystroem" not in name
    and "sum" not in name
    and name not in ("spectral", "diffusion_map", "density")
]  # which have no code for one


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param((name, "cpu"), id=name) for name in LAWS),
        *(pytest.param((name, "gpu"), id=f"{name} on a device", marks=pytest.mark.gpu) for name in ON_DEVICE),
    ],
)
def law(request: pytest.FixtureRequest) -> Law:
    name, device = request.param
    return replace(LAWS[name], device=device)


@dataclass(frozen=True)
class Finished:
    """What a law gives, on one thread and in little memory."""

    folder: Path
    """Where that lies, and what it is made of."""

    x: str
    result: rf.Result
    progress: list[tuple[Any, ...]]
    """All that was told."""


@pytest.fixture(scope="module")
def finished(law: Law, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Finished]]:
    """Made once, by the first test that asks: only tests have a device, and short segments."""
    folder = tmp_path_factory.mktemp("law")

    @functools.cache
    def make() -> Finished:
        x, told = law.store(folder), list[tuple[Any, ...]]()

        def tell(*progress: Any) -> None:
            told.append(progress)

        return Finished(folder, x, law(x, folder, "whole.zarr", **SMALL, progress=tell), told)

    yield make
    shutil.rmtree(folder)


SMALL: dict[str, Any] = {"threads": 1, "memory": "600MiB"}


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many tasks and checkpoints of little data."""
    for module in ("engine.sweep", "planning.passes"):
        monkeypatch.setattr(f"rankfold.pipeline.{module}.SEGMENT_SECONDS", 1e-5)
    yield


def arrays(result: rf.Result) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.asarray(getattr(result, name)[...]) for name in result}


def test_every_method_has_a_line() -> None:
    measures = {"trustworthiness", "continuity", "neighborhood_preservation"}  # which leave a number
    assert set(METHODS.ours) - measures <= {name.partition(" ")[0] for name in LAWS}


def test_every_axis_of_a_result_is_documented() -> None:
    assert dimensions() == {name for law in OUTPUTS.values() for name in law.axes or ()}
    assert set(validators()) == {"facts", "manifest", "run"}


def test_threads_and_memory_change_no_byte(law: Law, finished: Callable[[], Finished]) -> None:
    one = finished()
    many = law(one.x, one.folder, "3.zarr", threads=3, memory="2GiB")
    assert same_bytes(one.result) == same_bytes(many)


@pytest.mark.process
def test_worker_processes_change_no_byte(
    law: Law, finished: Callable[[], Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = [str(Path(stand_in.__file__).parents[1]), ON_PATH] if missing_device() else []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOY), *more]))  # as if it were installed
    here = finished()
    there = law(here.x, here.folder, "2.zarr", workers=1, threads=1)
    assert same_bytes(here.result) == same_bytes(there)


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_a_run_that_is_interrupted_goes_on_and_ends_with_the_same_bytes(
    law: Law, finished: Callable[[], Finished], share: float
) -> None:
    whole, out = finished(), f"{share}.zarr"
    told, left = whole.progress, [int(share * len(whole.progress))]

    def interrupt(*progress: Any) -> None:
        left[0] -= 1
        # The last is told in any case: how often, between beginnings and ends, is a matter of time.
        if left[0] < 0 or progress == told[-1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        law(whole.x, whole.folder, out, **SMALL, progress=interrupt)
    assert not (whole.folder / out).exists()
    assert same_bytes(law(whole.x, whole.folder, out, threads=2)) == same_bytes(whole.result)


def test_other_chunks_give_the_same_numbers(
    law: Law, finished: Callable[[], Finished], tmp_path: Path
) -> None:
    one = arrays(finished().result)
    two = arrays(law(law.store(tmp_path, (370, 40)), tmp_path, threads=1))
    assert one.keys() == two.keys()
    for name, values in one.items():
        if name not in ("residuals", "error_estimates", "left_residuals", "right_residuals"):
            assert values.shape == two[name].shape, name
            bound = law.tolerance * max(float(np.abs(values).max(initial=0)), 1e-300)
            np.testing.assert_allclose(two[name], values, rtol=0, atol=bound, err_msg=name)


def test_nan_is_refused_with_its_place_and_leaves_nothing(law: Law, tmp_path: Path) -> None:
    x = law.matrix()
    x[1234, 7] = np.nan
    place = "row 1234"
    good, bad = law.store(tmp_path), law.store(tmp_path, (300, 40), x)
    if law.fit is not None:
        law.fit(good, 4, out=tmp_path / "fit.zarr", threads=1)
        if not law.reads_matrix:
            pytest.skip("it reads no matrix")
        call = law.call
        with pytest.raises(rf.RankfoldError, match=place):
            call(tmp_path / "fit.zarr", bad, **law.asked, **law.where, out=tmp_path / "r.zarr", threads=1)
    else:
        with pytest.raises(rf.RankfoldError, match=place):
            law(bad, tmp_path, threads=1)
    assert not (tmp_path / "r.zarr").exists()


def test_what_is_there_is_what_was_said(law: Law, finished: Callable[[], Finished]) -> None:
    """A second call finds it done; it opens, every file is as it was written and lies as documented; a plan
    said how many passes.
    """
    one = finished()
    made, path = one.result, one.folder / "whole.zarr"
    before = (path / "zarr.json").stat().st_mtime_ns
    again = law(one.x, one.folder, "whole.zarr", threads=2)
    assert same_bytes(again) == same_bytes(made)
    assert (path / "zarr.json").stat().st_mtime_ns == before
    assert rf.verify(path) == []
    require_format(path, names=set() if made.attrs["kind"] in METHODS.ours else {"power"})
    assert same_bytes(rf.open_result(path)) == same_bytes(made)
    if law.name:
        plan = rf.plan(law.name, one.x, **law.asked)
        assert made.attrs["passes"] <= plan.most_passes


def test_outputs_are_those_that_a_task_names(law: Law, finished: Callable[[], Finished]) -> None:
    if not law.name:
        pytest.skip("it has no task of a matrix alone")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = arrays(finished().result)
    named = {each.name: each for each in METHODS[law.name].task(finished().x, **law.asked).outputs()}
    for name, values in made.items():
        assert len(named[name].shape) == values.ndim, name
        assert named[name].dtype == values.dtype, name
        assert all(n >= m for n, m in zip(named[name].shape, values.shape, strict=True)), name


@pytest.mark.parametrize("missing", ["raise", "em"])
def test_what_steps_have_measured_lies_as_documented(tmp_path: Path, missing: str) -> None:
    x = matrix()
    if missing == "em":
        x[3, 4] = np.nan
    steps = None if missing == "em" else "normalize_total, log1p, highly_variable(20), scale"
    made = rf.pca(store(tmp_path, x=x), 3, missing=missing, prepare=steps, out=tmp_path / "r.zarr")
    require_format(tmp_path / "r.zarr")
    assert any(name.startswith("prepare_1_") for name in made)
