"""Workers that do not reach each other, though both reach the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from operator import neg
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster
from drivers import wait_for

from rankfold.cluster.local import relay
from rankfold.cluster.local.worker import RankfoldWorker
from rankfold.pipeline.storage.journal import Journal

PAGE = Path(__file__).parents[3] / "docs" / "slurm.md"
WAYS = ("silence", "refusal")
TIMEOUT = 30


class NoKernels:
    """Of workers that need none."""

    def warm(self) -> None:
        """Do nothing."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    """Two workers of this process, as those of a run are."""
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 0.4)
    monkeypatch.setattr("rankfold.cluster.local.worker.note_baseline", lambda: None)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.register_plugin(RankfoldWorker("test", NoKernels(), {}, Journal(tmp_path), workers=2))
        yield client


def workers(client: Client) -> tuple[Any, Any]:
    """The two, in any order."""
    one, other = client.cluster.workers.values()
    return one, other


def cut(monkeypatch: pytest.MonkeyPatch, one: Any, other: Any, way: str) -> list[str]:
    """Let one worker reach the other no more; returns a list that gets an entry for each attempt."""
    connect, attempts = one.rpc.connect, list[str]()

    async def broken(address: str, *given: Any, **named: Any) -> Any:
        if address != other.address:
            return await connect(address, *given, **named)
        attempts.append(address)
        if way == "silence":
            await asyncio.sleep(1000)
        raise OSError("no route to host")

    monkeypatch.setattr(one.rpc, "connect", broken)
    return attempts


def fetched(client: Client, number: int, source: Any, to: Any) -> Any:
    """Minus a number that one worker has from another."""
    there = client.submit(abs, -number, workers=[source.address])
    return client.submit(neg, there, workers=[to.address]).result(timeout=TIMEOUT)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_worker_cannot_fetch_comes_by_way_of_the_scheduler(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    one, other = workers(client)
    attempts = cut(monkeypatch, one, other, way)
    assert fetched(client, 3, other, one) == -3
    attempts_until_then = len(attempts)
    assert fetched(client, 4, other, one) == -4
    assert len(attempts) == attempts_until_then >= 1  # it is not asked again at once
    assert '"unreachable"' in "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))


def test_a_worker_that_answers_again_is_asked_directly(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "AGAIN_SECONDS", 0.0)
    one, other = workers(client)
    with monkeypatch.context() as while_cut:
        cut(while_cut, one, other, "refusal")
        assert fetched(client, 5, other, one) == -5

    async def none(*_: Any) -> None:
        raise AssertionError("the scheduler was asked")

    monkeypatch.setattr(relay.Relay, "_relay", none)
    assert fetched(client, 6, other, one) == -6


def test_a_worker_that_has_ended_is_not_looked_for_by_detours(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 10.0)
    one, other = workers(client)
    there = client.submit(abs, -7, workers=[other.address], allow_other_workers=True)
    there.result(timeout=TIMEOUT)
    client.sync(other.close, reason="test")
    assert client.submit(neg, there, workers=[one.address]).result(timeout=TIMEOUT) == -7
    assert "by way of the scheduler" not in caplog.text


def test_what_is_lost_while_it_is_fetched_is_made_again_without_an_error(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 2.0)
    one, other = workers(client)
    attempts = cut(monkeypatch, one, other, "silence")
    there = client.submit(abs, -8, workers=[other.address], allow_other_workers=True)
    there.result(timeout=TIMEOUT)
    here = client.submit(neg, there, workers=[one.address])
    wait_for(lambda: bool(attempts), otherwise=lambda: "nothing was fetched")
    client.sync(other.close, reason="test")
    assert here.result(timeout=TIMEOUT) == -8
    assert "Couldn't gather" not in caplog.text


def test_a_worker_that_is_sent_much_asks_few_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own loop is what takes long for many, and no worker of them is silent."""
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 0.4)
    under_way, most = 0, 0

    async def fetch(*_: Any, **__: Any) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.002 * under_way)
        under_way -= 1
        return "fetched"

    async def fetch_all() -> list[Any]:
        worker: Any = SimpleNamespace(gather_dep=fetch, name="one")
        ask = relay.Relay(worker, Journal(tmp_path))
        return await asyncio.gather(*(ask(f"tcp://{i}", ["key"], 8, stimulus_id="test") for i in range(500)))

    assert set(asyncio.run(fetch_all())) == {"fetched"}
    assert most == relay.FETCHES


def test_a_run_that_has_ended_leaves_a_worker_as_it_was(client: Client) -> None:
    one, _ = workers(client)
    assert isinstance(one.gather_dep, relay.Relay)
    client.unregister_worker_plugin("test")
    assert not isinstance(one.gather_dep, relay.Relay)


def test_the_page_says_how_long_a_worker_waits() -> None:
    assert (
        f"\n{relay.PATIENCE_SECONDS:.0f} seconds what one lacks comes by way of the driver"
        in PAGE.read_text()
    )
