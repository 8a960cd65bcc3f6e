"""A sweep gives the same bytes however it is run, interrupted, resumed or shared."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest
from covers import cover
from distributed import Client as DaskClient
from distributed import LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.cluster.local import threads
from rankfold.cluster.local.client import Client
from rankfold.cluster.local.threads import Threads
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device, Report
from rankfold.pipeline.engine.scheduler import Budget, Scheduler
from rankfold.pipeline.engine.sweep import FAN_IN, SEGMENT_SECONDS, Sweep
from rankfold.pipeline.errors import PlanError
from rankfold.pipeline.storage.checkpoint import State, load_if_whole, save_arrays
from rankfold.pipeline.storage.run_directory import RunDirectory, digest

# A toy fold ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Watch:
    """What a test sees of a fold, and what it does to it, in this process."""

    steps: Counter[int] = field(default_factory=Counter)
    """How often each panel was folded, by its first row."""

    readers: set[str] = field(default_factory=set)
    """Names of the threads that read."""

    workspaces: int = 0
    before_step: Callable[[int], None] = lambda start: None


WATCHES: dict[str, Watch] = {}


@dataclass(frozen=True)
class RowSum:
    """Sum of the rows, shrunk a little before each: any other order, cut or repetition changes its bits."""

    cut: Cut
    slots: int = 1
    panels_per_segment: int = 2
    read_seconds: float = 0.0
    watch: str = ""
    constants: Path | None = None
    """A part with the ``factor`` of every row."""

    @property
    def row_seconds(self) -> float:
        return SEGMENT_SECONDS / (self.panels_per_segment * self.cut.panel_rows)

    resident = frozenset[str]()
    device_bytes = 0

    def start(self) -> State:
        return {"sum": np.zeros(3)}

    def workspace(self, device: Device = HOST) -> dict[str, Any]:
        WATCHES.setdefault(self.watch, Watch()).workspaces += 1
        stored = load_if_whole(self.constants) if self.constants else None
        return {
            "factor": float(stored["factor"]) if stored else 1.0,
            "slots": [np.empty((self.cut.panel_rows, 3)) for _ in range(self.slots)],
        }

    def read(self, work: dict[str, Any], start: int, stop: int, slot: int) -> None:
        panel = work["slots"][slot][: stop - start]
        panel[...] = np.nan  # whoever still works on this slot will see it
        time.sleep(self.read_seconds)
        panel[...] = rows(start, stop)
        WATCHES[self.watch].readers.add(threading.current_thread().name)

    def step(self, state: State, work: dict[str, Any], start: int, stop: int, slot: int) -> None:
        watch = WATCHES[self.watch]
        watch.before_step(start)
        for row in work["slots"][slot][: stop - start]:
            state["sum"] *= 1.0000001
            state["sum"] += work["factor"] * row
        watch.steps[start] += 1

    def merge(self, total: State, other: State) -> None:
        total["sum"] *= 0.9999999
        total["sum"] += other["sum"]


def rows(start: int, stop: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(2).standard_normal((200, 3))[start:stop]


def make_cut(panels: int, streams: int) -> Cut:
    heights = 1 + np.arange(panels) * 7 % 4  # 1, 4, 3, 2, 1, ...
    edges = np.arange(streams + 1) * panels // streams
    return Cut(np.cumsum([0, *heights]), edges, grain_rows=2)


def by_hand(cut: Cut, factor: float = 1.0) -> bytes:
    """Streams folded in order, then merged ``FAN_IN`` at a time, in one loop."""
    fold = RowSum(cut)
    layer = []
    for first, last in zip(cut.streams[:-1], cut.streams[1:], strict=True):
        state = np.zeros(3)
        for row in rows(int(cut.panels[first]), int(cut.panels[last])):
            state = state * 1.0000001 + factor * row
        layer.append({"sum": state})
    while len(layer) > 1:
        for i in range(0, len(layer), FAN_IN):
            for other in layer[i + 1 : i + FAN_IN]:
                fold.merge(layer[i], other)
        layer = layer[::FAN_IN]
    return layer[0]["sum"].tobytes()


@pytest.fixture
def watched() -> Iterator[Watch]:
    """The watch of folds that ask for ``watch="test"``."""
    WATCHES["test"] = Watch()
    yield WATCHES["test"]
    del WATCHES["test"]


def total(
    folder: Path, fold: RowSum, concurrency: int = 1, scheduler: Scheduler | None = None, progress: Any = None
) -> bytes:
    finished = Sweep("sum", fold, folder, concurrency).run(
        scheduler or Threads(Budget(2**30, concurrency)), progress
    )
    return finished.state["sum"].tobytes()


# The same bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("streams", "slots", "concurrency"), cover([1, 4, 32], [1, 2], [1, 2, 4]))
def test_concurrency_and_slots_change_no_bit(
    tmp_path: Path, streams: int, slots: int, concurrency: int, watched: Watch
) -> None:
    cut = make_cut(40, streams)
    fold = RowSum(cut, slots, read_seconds=0.001 * (slots - 1), watch="test")
    assert total(tmp_path / "sum", fold, concurrency) == by_hand(cut)
    assert set(watched.steps.values()) == {1} and len(watched.steps) == 40
    assert watched.workspaces <= concurrency
    assert sorted(path.name for path in tmp_path.rglob("*.part")) == ["total.part"]


@pytest.mark.parametrize("panels_per_segment", [1, 3, 100])
def test_the_length_of_segments_changes_no_bit(tmp_path: Path, panels_per_segment: int) -> None:
    cut = make_cut(40, 4)
    fold = RowSum(cut, panels_per_segment=panels_per_segment)
    keys = Sweep("sum", fold, tmp_path / "sum", 2).graphs()[0].__dask_graph__()
    segments = [key for key in keys if str(key[0]).startswith("sum-segment-")]
    assert len(segments) == 4 * -(-10 // panels_per_segment)
    assert total(tmp_path / "sum", fold, 2) == by_hand(cut)


def test_reads_that_wait_go_ahead_where_there_is_a_second_slot(tmp_path: Path, watched: Watch) -> None:
    fold = RowSum(make_cut(20, 1), slots=1, panels_per_segment=20, read_seconds=0.002, watch="test")
    total(tmp_path / "one", fold)
    assert not any(name.startswith("rankfold-read") for name in watched.readers)
    total(tmp_path / "two", replace(fold, slots=2))
    assert any(name.startswith("rankfold-read") for name in watched.readers)


def test_keys_are_made_of_names_and_numbers(tmp_path: Path) -> None:
    def keys() -> list[Any]:
        graphs = Sweep("sum", RowSum(make_cut(40, 16)), tmp_path / "sum", 2).graphs()
        return [key for graph in graphs for key in graph.__dask_graph__()]

    assert keys() == keys()
    assert len(set(keys())) == len(keys())
    assert all(isinstance(part, str | int) for key in keys() for part in key)


# Interruption --------------------------------------------------------------------------------------


class Broken(Exception):
    """What a test throws into a sweep."""


def break_at(start: int) -> Callable[[int], None]:
    """Raise at one panel, once."""
    left = [start]

    def before_step(here: int) -> None:
        if here in left:
            left.remove(here)
            raise Broken

    return before_step


@settings(max_examples=30)
@given(
    panel=st.integers(0, 39),
    streams=st.sampled_from([1, 4, 16]),
    slots=st.integers(1, 2),
    concurrency=st.integers(1, 4),
    panels_per_segment=st.integers(1, 5),
)
def test_an_error_in_any_panel_costs_its_segment_at_most(
    panel: int, streams: int, slots: int, concurrency: int, panels_per_segment: int
) -> None:
    cut = make_cut(40, streams)
    watched = WATCHES["error"] = Watch(before_step=break_at(cut.panel(panel)[0]))
    fold = RowSum(cut, slots, panels_per_segment, watch="error")
    with tempfile.TemporaryDirectory() as folder:
        with pytest.raises(Broken):
            total(Path(folder) / "sum", fold, concurrency)
        assert watched.steps[cut.panel(panel)[0]] == 0
        # Other settings of the machine must find the same files.
        again = replace(fold, slots=3 - slots, panels_per_segment=3)
        assert total(Path(folder) / "sum", again, 3) == by_hand(cut)
    first = int(cut.streams[np.searchsorted(cut.streams, panel, "right") - 1])
    segment = first + (panel - first) // panels_per_segment * panels_per_segment
    repeated = {start for start, count in watched.steps.items() if count > 1}
    assert repeated <= {cut.panel(i)[0] for i in range(segment, panel)}
    assert len(watched.steps) == 40 and max(watched.steps.values()) <= 2


@pytest.mark.parametrize(("concurrency", "panel"), cover([1, 3], [0, 1, 7, 20, 38], strength=1))
def test_stopping_repeats_nothing(
    tmp_path: Path, panel: int, concurrency: int, monkeypatch: pytest.MonkeyPatch, watched: Watch
) -> None:
    monkeypatch.setattr(threads, "TICK_SECONDS", 0.001)
    cut, reached, noticed = make_cut(40, 4), threading.Event(), threading.Event()

    def before_step(start: int) -> None:
        if start == cut.panel(panel)[0]:
            reached.set()
            assert noticed.wait(10)

    def progress(name: str, done: int, of: int) -> None:
        if reached.is_set() and not noticed.is_set():
            noticed.set()
            raise KeyboardInterrupt

    watched.before_step = before_step
    fold = RowSum(cut, 2, panels_per_segment=5, read_seconds=0.001, watch="test")
    with pytest.raises(KeyboardInterrupt):
        total(tmp_path / "sum", fold, concurrency, progress=progress)
    assert not (tmp_path / "sum" / "total.part").exists()
    assert total(tmp_path / "sum", fold, concurrency, progress=progress) == by_hand(cut)
    assert set(watched.steps.values()) == {1} and len(watched.steps) == 40


def test_a_finished_sweep_is_not_run_again(tmp_path: Path) -> None:
    class Refusing:
        def compute(self, root: Any, **options: Any) -> NoReturn:
            raise AssertionError("the scheduler was asked again")

    cut, calls = make_cut(12, 4), []
    first = total(tmp_path / "sum", RowSum(cut), 2)
    again = total(tmp_path / "sum", RowSum(cut), 2, Refusing(), lambda *call: calls.append(call))
    assert again == first == by_hand(cut)
    assert calls == [("sum", cut.length, cut.length)]


@pytest.mark.parametrize("part", ["stream-00003.part", "merge-1-00000.part", "merge-1-00001.part"])
def test_a_part_that_a_crash_damaged_is_made_again(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = make_cut(40, 16)

    def killed(path: Path, *rest: Any, **options: Any) -> None:
        if path.name == ".total.part":
            raise Broken
        save_arrays(path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr("rankfold.pipeline.engine.sweep.save_arrays", killed)
        with pytest.raises(Broken):
            total(tmp_path / "sum", RowSum(cut), 2)
    path = tmp_path / "sum" / part
    content, data = path.read_bytes(), (load_if_whole(path) or {})["sum"].tobytes()
    # These parts are not flushed, so a crash of the machine may leave zeros inside.
    path.write_bytes(content.replace(data, bytes(len(data))))
    (tmp_path / "sum" / "merge-2-00000.part").unlink()
    assert total(tmp_path / "sum", RowSum(cut), 2) == by_hand(cut)


def test_workers_of_different_processors_are_refused(tmp_path: Path) -> None:
    class Mixed:
        graphs = 0

        def members(self) -> tuple[str, ...]:
            return ()

        def compute(self, root: Any, **options: Any) -> Report:
            self.graphs += 1
            cores = ("cpu", "Haswell"), ("cpu", "SkylakeX"), ("gpu", "H100")
            return Report(frozenset(cores[:1]), 1) | Report(frozenset(cores[1:]), 2)

    with pytest.raises(PlanError, match=r"different BLAS kernels .Haswell; SkylakeX.*OPENBLAS_CORETYPE"):
        total(tmp_path / "sum", RowSum(make_cut(40, 4)), 1, mixed := Mixed())
    assert mixed.graphs == 1, "nothing is merged"
    assert not (tmp_path / "sum" / "total.part").exists()


# A client ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster(**options: Any) -> Iterator[Client]:
    """Workers on this machine."""
    local = LocalCluster(dashboard_address=":0", **options)  # type: ignore[no-untyped-call]
    with local, DaskClient(local) as dask_client:  # type: ignore[no-untyped-call]
        yield Client(dask_client, lambda: None)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers of two threads, in this process."""
    with cluster(n_workers=2, threads_per_worker=2, processes=False) as client:
        yield client


def test_a_client_gives_the_same_bytes(tmp_path: Path, client: Client, watched: Watch) -> None:
    cut = make_cut(40, 16)
    for number in range(2):
        assert total(tmp_path / str(number), RowSum(cut, watch="test"), 2, client) == by_hand(cut)
    assert set(watched.steps.values()) == {2}


def test_a_worker_holds_no_more_workspaces_than_planned(
    tmp_path: Path, client: Client, watched: Watch
) -> None:
    cut = make_cut(40, 16)
    fold = RowSum(cut, read_seconds=0.001, watch="test")
    assert total(tmp_path / "sum", fold, 1, client) == by_hand(cut)
    assert watched.workspaces == 1


def test_a_client_goes_on_where_threads_stopped(tmp_path: Path, client: Client, watched: Watch) -> None:
    cut = make_cut(40, 4)
    watched.before_step = break_at(cut.panel(25)[0])
    with pytest.raises(Broken):
        total(tmp_path / "sum", RowSum(cut, watch="test"), 2)
    folded = sum(watched.steps.values())
    assert total(tmp_path / "sum", RowSum(cut, watch="test"), 2, client) == by_hand(cut)
    # The five panels before the broken one at least, of which its segment is repeated.
    assert folded >= 5 and sum(watched.steps.values()) <= 40 + 1


def test_two_runs_at_once_on_one_client_do_not_mix(tmp_path: Path, client: Client, watched: Watch) -> None:
    cuts = [make_cut(12, 4), make_cut(20, 4)]
    entered, gate = threading.Event(), threading.Event()

    def before_step(start: int) -> None:
        entered.set()
        gate.wait(10)

    watched.before_step = before_step
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(total, tmp_path / "slow", RowSum(cuts[0], watch="test"), 1, client)
        assert entered.wait(10)
        quick = pool.submit(total, tmp_path / "quick", RowSum(cuts[1], watch="quick"), 1, client)
        wait([quick], timeout=1)
        gate.set()
        assert slow.result(10) == by_hand(cuts[0])
        assert quick.result(10) == by_hand(cuts[1])


# One folder, two requests --------------------------------------------------------------------------


def weighted(
    run: RunDirectory, fold: RowSum, factor: float, scheduler: Scheduler, progress: Any = None
) -> bytes:
    """A run of a request with one number in it, kept as a constant beside its sweep."""
    with run.claim({"factor": factor}, overwrite=True):
        constants = run.state / "constants.part"
        save_arrays(constants, {"factor": np.float64(factor)})
        return total(run.state / "sum", replace(fold, constants=constants), 1, scheduler, progress)


def request(output: Path, factor: float) -> RunDirectory:
    return RunDirectory.beside(output, None, digest({"factor": factor}))


def test_what_an_interrupted_request_still_computes_does_not_reach_the_next(
    tmp_path: Path, client: Client, watched: Watch
) -> None:
    cut, entered, gate = make_cut(12, 4), threading.Event(), threading.Event()

    def before_step(start: int) -> None:
        entered.set()
        gate.wait(1)

    def progress(name: str, done: int, of: int) -> None:
        if entered.is_set():
            raise KeyboardInterrupt

    watched.before_step = before_step
    with pytest.raises(KeyboardInterrupt):
        weighted(request(tmp_path / "r", 1.0), RowSum(cut, watch="test"), 1.0, client, progress)
    with ThreadPoolExecutor(1) as pool:
        after = pool.submit(weighted, request(tmp_path / "r", 2.0), RowSum(cut, watch="after"), 2.0, client)
        wait([after], timeout=0.5)
        gate.set()
        assert after.result(10) == by_hand(cut, 2.0)


@pytest.mark.process
def test_a_worker_that_lives_on_forgets_the_constants_of_another_request(tmp_path: Path) -> None:
    cut = make_cut(12, 1)
    with cluster(n_workers=1, threads_per_worker=1, processes=True) as client:
        for factor in (1.0, 2.0):
            found = weighted(request(tmp_path / "r", factor), RowSum(cut), factor, client)
            assert found == by_hand(cut, factor)
