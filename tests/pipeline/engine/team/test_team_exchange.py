"""Messages between processes: all arrive, in order, whole; who waits for one that will not come is told."""

from __future__ import annotations

import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rankfold.pipeline.engine.team import Exchange, PeerLeft

MESSAGES = 40


def test_every_message_arrives_whoever_is_slow(tmp_path: Path) -> None:
    """Of five processes, one of which never has a row, and each of which stops for a while at times."""
    rng = np.random.default_rng(0)
    cuts = [np.sort(rng.integers(0, 60, 3)) for _ in range(MESSAGES)]
    ends = [[0, *cut.tolist()[:1], *cut.tolist()[:1], *cut.tolist()[1:], 60] for cut in cuts]
    arrays = rng.standard_normal((MESSAGES, 60, 3)).astype(np.float32)

    def work(member: Exchange) -> None:
        chance = np.random.default_rng(member.part)
        for number in range(MESSAGES):
            mine = np.zeros((60, 3), np.float32)
            own = slice(*ends[number][member.part : member.part + 2])
            mine[own] = arrays[number, own]
            time.sleep(float(chance.choice([0, 0, 0, 0.01])))
            pickle.loads(pickle.dumps(member)).swap(number + 1, mine, ends[number])
            np.testing.assert_array_equal(mine, arrays[number])

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(work, Exchange.create(tmp_path / "exchange", [60 * 12] * 5)))


def test_a_message_that_is_half_written_is_waited_for(tmp_path: Path) -> None:
    one, two = Exchange.create(tmp_path, [32, 32])
    values = np.arange(8, dtype=np.float32)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(two.swap, 1, values.copy(), [0, 4, 8])
        while not os.path.getsize(two.path(1)) or not any(two.path(1).read_bytes()):
            time.sleep(0.001)
        written = two.path(1).read_bytes()
        two.path(1).write_bytes(written.replace(values[4:].tobytes(), bytes(16)))
        looks: list[float] = []

        def repair() -> None:
            looks.append(time.monotonic())
            if len(looks) == 5:
                two.path(1).write_bytes(written)

        array = np.concatenate([values[:4], np.zeros(4, np.float32)])
        one.swap(1, array, [0, 4, 8], repair)
        other.result()
    assert len(looks) == 5
    np.testing.assert_array_equal(array, values)


def test_who_waits_for_a_process_that_has_left_is_told(tmp_path: Path) -> None:
    one, two = Exchange.create(tmp_path, [4, 4])
    two.leave()
    with pytest.raises(PeerLeft, match="process 1 left before message 1"):
        one.swap(1, np.zeros(2, np.float32), [0, 1, 2])


def test_a_message_sent_before_leaving_arrives(tmp_path: Path) -> None:
    one, two = Exchange.create(tmp_path, [4, 4])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.swap, 1, np.float32([1, 0]), [0, 1, 2])
        array = np.float32([0, 2])
        two.swap(1, array, [0, 1, 2])
        two.leave()
        first.result()
    np.testing.assert_array_equal(array, [1, 2])


def test_who_waits_in_a_folder_that_has_gone_is_told(tmp_path: Path) -> None:
    one, two = Exchange.create(tmp_path / "gone", [4, 4])
    two.path(1).unlink()
    with pytest.raises(PeerLeft, match="has gone with its attempt"):
        one.swap(1, np.zeros(2, np.float32), [0, 1, 2])
