"""An import holds the numbers of its source, stays within its memory, and is complete or not there."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import KINDS, ROWS, numbers, read, zarr_store
from zarr.codecs import ZstdCodec

import rankfold
from rankfold.api.finished import verify
from rankfold.pipeline import outputs
from rankfold.pipeline.data.describe import describe
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ChunkError, DataError, DiskSpaceError, MemoryBudgetError, OutputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array
from rankfold.pipeline.importing import tiles as ingest
from rankfold.pipeline.importing.chunking import (
    choose_codec,
    chunk_shape,
    decoded_again,
    fit_tile,
    memory_need,
)

GENEROUS = 256 * 2**20


def whole(source: Source) -> Any:
    return read(source, (0, source.shape[0]), (0, source.shape[1]))


@pytest.mark.parametrize(
    "kind", ["v3 cells", "v3 gzip", "v3 shards of blosc", "npy fortran", "numpy", "dask", "v2 big endian"]
)
def test_any_source_becomes_the_same_numbers_in_zarr(tmp_path: Path, kind: str) -> None:
    source = open_source(KINDS[kind](tmp_path, numbers()))
    report = import_array(source, tmp_path / "out.zarr", chunk_bytes=4096)
    made = open_source(tmp_path / "out.zarr")
    made.check()
    np.testing.assert_array_equal(whole(made), numbers())
    assert (report.shape, report.dtype) == ((53, 37), "float32")
    assert report.chunks == (53, 37) == describe(made).chunks
    assert report.codec == describe(made).codec
    assert report.bytes_written == describe(made).stored_bytes
    assert report.bytes_read >= ROWS * 37 * 4
    assert sorted(os.listdir(tmp_path))[0] == "out.zarr"
    assert not list(tmp_path.glob("*partial*"))


@settings(max_examples=12, derandomize=True, deadline=None)
@given(
    rows=st.integers(1, 900),
    columns=st.integers(1, 40),
    chunks=st.tuples(st.integers(1, 400), st.integers(1, 40)),
    mebibytes=st.integers(22, 40),
)
def test_any_chunks_within_any_memory(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, chunks: tuple[int, int], mebibytes: int
) -> None:
    folder = tmp_path_factory.mktemp("import")
    x = np.arange(rows * columns, dtype="i4").reshape(rows, columns)
    source = open_source(da.from_array(x, chunks=chunks))
    import_array(source, folder / "out.zarr", memory_bytes=mebibytes * 2**20, chunk_bytes=1)
    made = open_source(folder / "out.zarr")
    np.testing.assert_array_equal(whole(made), x)
    assert made.row_grid.longest == min(rows, 256)


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((1_000_000, 1000), (4194, 1000)),
        ((1_000_000, 65_536), (256, 65_536)),
        ((1_000_000, 65_537), (256, 13_108)),
        ((1_000_000, 1_000_000), (67, 62_500)),
        ((100, 50), (100, 50)),
        ((10, 2**31), (10, 419_430)),
        ((1_000_000, 2000), (2096, 2000)),
    ],
)
def test_chunks_are_whole_lines_across_the_short_side_while_256_of_them_fit(
    shape: tuple[int, int], chunks: tuple[int, int]
) -> None:
    source = open_source(np.broadcast_to(np.float32(0), shape))
    assert chunk_shape(source, 16 * 2**20) == chunks


def test_the_codec_follows_a_sample() -> None:
    rng = np.random.default_rng(1)
    noise = open_source(rng.standard_normal((3000, 100)))
    digits = open_source(rng.integers(0, 2**10, (3000, 100)).astype("f4"))
    counts = open_source(rng.poisson(0.1, (3000, 100)).astype("f8"))
    names = [choose_codec(source, chunk_shape(source, 2**20)).words for source in (noise, digits, counts)]
    assert names == ["none", "blosc(lz4, 5, shuffle)", "blosc(zstd, 3, shuffle)"]


def test_chunks_of_nothing_but_zeros_are_written(tmp_path: Path) -> None:
    import_array(open_source(np.zeros((700, 3))), tmp_path / "zero.zarr", chunk_bytes=1)
    open_source(tmp_path / "zero.zarr").check()


def test_chunks_too_tall_for_the_memory_are_cut(tmp_path: Path) -> None:
    """Each source chunk is decoded twice at most, once where a plain copy lies in between."""
    x = np.random.default_rng(2).integers(0, 1000, (40_000, 200)).astype("f8")
    path = zarr_store(tmp_path / "x.zarr", x, chunks=(40_000, 10), compressors=ZstdCodec(level=1))
    source = open_source(path)
    memory = 40 * 2**20
    tile = fit_tile(source, (256, 200), choose_codec(source, (256, 200)), memory).tile
    assert decoded_again(source, tile) > 2
    report = import_array(source, tmp_path / "out.zarr", memory_bytes=memory, chunk_bytes=1)
    assert report.bytes_read == 2 * x.nbytes
    np.testing.assert_array_equal(whole(open_source(tmp_path / "out.zarr")), x)
    one_copy = import_array(source, tmp_path / "two.zarr", memory_bytes=4 * x.nbytes, chunk_bytes=1)
    assert one_copy.bytes_read == x.nbytes


def test_the_memory_stays_below_what_is_given(tmp_path: Path) -> None:
    """RssAnon of a process of its own, against one that has imported the same libraries."""
    code = f"""
import threading, time, numpy as np
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array
def anonymous():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) * 1024
import_array(open_source(np.ones((9, 9))), {str(tmp_path / "warm.zarr")!r})
source, peak, done = open_source({str(tmp_path / "x.npy")!r}), [0], threading.Event()
def watch():
    while not done.wait(0.001):
        peak[0] = max(peak[0], anonymous())
base, thread = anonymous(), threading.Thread(target=watch)
thread.start()
import_array(source, {str(tmp_path / "out.zarr")!r}, memory_bytes={64 * 2**20}, chunk_bytes={8 * 2**20})
done.set(); thread.join(); print(peak[0] - base)
"""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("memory is measured through /proc, which this system does not have")
    x = np.random.default_rng(3).integers(0, 1000, (40_000, 1000)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    taken = int(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert 4 * 2**20 < taken <= 64 * 2**20 < x.nbytes


def test_memory_for_not_even_one_chunk_is_refused_with_the_number(tmp_path: Path) -> None:
    source = open_source(np.zeros((5000, 1000)))
    least = memory_need(source, (262, 1000), (262, 1000))
    with pytest.raises(
        MemoryBudgetError,
        match=rf"for a chunk of 262 x 1000 float64 .*memory_bytes={-(-least // 2**20) * 2**20}",
    ):
        import_array(source, tmp_path / "out.zarr", memory_bytes=2**20, chunk_bytes=2**21)
    assert not list(tmp_path.iterdir())


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    import_array(
        open_source(np.ones((2000, 3))),
        tmp_path / "o.zarr",
        chunk_bytes=1,
        progress=lambda *at: seen.append(at),
    )
    assert seen == sorted(seen) and len(seen) == 8 and seen[-1] == (48_000, 48_000)


# --- complete or not there


def test_what_another_command_makes_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draft").mkdir()
    flush_tree = ingest.flush_tree

    def overtaken(draft: Path) -> None:
        flush_tree(draft)
        (tmp_path / "x.zarr").mkdir()
        (tmp_path / "x.zarr" / "zarr.json").write_text("of another")

    monkeypatch.setattr(ingest, "flush_tree", overtaken)
    with pytest.raises(OutputError, match="came to be while it was made"):
        ingest.publish(tmp_path / "draft", tmp_path / "x.zarr", overwrite=False)
    assert (tmp_path / "x.zarr" / "zarr.json").read_text() == "of another"
    assert [path.is_dir() for path in tmp_path.glob("x.zarr.*")] == [True]  # what was made is kept


def test_what_exists_is_kept_unless_told(tmp_path: Path) -> None:
    target = tmp_path / "x.zarr"
    import_array(open_source(numbers()), target)
    with pytest.raises(OutputError, match=r"x\.zarr exists\. Say overwrite=True"):
        import_array(open_source(numbers() + 1), target)
    np.testing.assert_array_equal(whole(open_source(target)), numbers())
    import_array(open_source(numbers() + 1), target, overwrite=True)
    np.testing.assert_array_equal(whole(open_source(target)), numbers() + 1)
    assert os.listdir(tmp_path) == ["x.zarr"]


def test_a_store_of_others_is_never_replaced(tmp_path: Path) -> None:
    target = zarr_store(tmp_path / "x.zarr", numbers())
    with pytest.raises(OutputError, match="was not made by rankfold, so it is never replaced"):
        import_array(open_source(numbers() + 1), target, overwrite=True)
    np.testing.assert_array_equal(whole(open_source(target)), numbers())


@pytest.mark.parametrize("place", ["itself", "link", "inside", "around", "array", "sparse"])
def test_a_store_is_never_written_over_its_own_source(tmp_path: Path, place: str) -> None:
    """Nor into it, nor around it, by whatever name: refused before anything is looked at or removed."""
    store = zarr_store(tmp_path / "around.zarr" / "x.zarr", numbers(), chunks=(ROWS, 5))
    zarr.create_group(tmp_path / "around.zarr")
    (tmp_path / "link.zarr").symlink_to(store)
    target, source = {
        "itself": (store, store),
        "link": (tmp_path / "link.zarr", store),
        "inside": (tmp_path / "link.zarr" / "part.zarr", store),
        "around": (tmp_path / "around.zarr", f"{tmp_path}/around.zarr::x.zarr"),
        "array": (store, zarr.open_array(store, mode="r")),
        "sparse": (tmp_path / "s.zarr", tmp_path / "s.zarr"),
    }[place]
    if place == "sparse":
        import scipy.sparse

        x = scipy.sparse.random(20, 10, 0.3, "coo", random_state=0)
        scipy.sparse.save_npz(tmp_path / "s.npz", x)
        import_array(tmp_path / "s.npz", target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match=r"would lie in, on or around its own input .*Give another name"):
        import_array(source, target, overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_same_import_again_is_done_already(tmp_path: Path) -> None:
    """Whether or not it says overwrite; of another source, or in another way, it is not."""
    store, target = zarr_store(tmp_path / "x.zarr", numbers()), tmp_path / "out.zarr"
    first = import_array(store, target)
    state = os.stat(target / "zarr.json")
    for overwrite in (False, True):
        again = import_array(store, target, overwrite=overwrite)
        assert again.done_before and not first.done_before and again.bytes_read == 0
        facts = ("shape", "dtype", "chunks", "codec", "bytes_written", "layout", "nnz")
        assert [getattr(again, name) for name in facts] == [getattr(first, name) for name in facts]
    assert os.stat(target / "zarr.json") == state
    with pytest.raises(OutputError, match=r"exists\. Say overwrite=True"):
        import_array(store, target, dtype="float64")
    with pytest.raises(OutputError, match=r"exists\. Say overwrite=True"):
        import_array(store, target, select_rows="0:50")
    zarr_store(store, numbers() + 1, overwrite=True)
    with pytest.raises(OutputError, match=r"exists\. Say overwrite=True"):
        import_array(store, target)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("c/0/0", lambda data: None),
        ("c/0/0", lambda data: data[:-1]),
        ("c/0/0", lambda data: data[:40] + bytes([data[40] ^ 4]) + data[41:]),
        ("zarr.json", lambda data: data.replace(b'"fill_value": 0', b'"fill_value": 1')),
        ("zarr.json", lambda data: data.replace(b"rankfold_import", b"rankfold_imports")),
        ("zarr.json", lambda data: data[:10]),
        ("zarr.json", lambda data: None),
        ("manifest.json", lambda data: b"7"),
    ],
)
def test_an_imported_store_that_is_damaged_is_told_and_made_again(
    tmp_path: Path,
    name: str,
    damage: Callable[[bytes], bytes | None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, target = zarr_store(tmp_path / "x.zarr", numbers()), tmp_path / "out.zarr"
    import_array(store, target)
    assert verify(target) == []
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    changed = damage(before[target / name])
    assert changed != before[target / name]
    (target / name).unlink()
    if changed is not None:
        (target / name).write_bytes(changed)
    assert name in verify(target)[0]
    assert not import_array(store, target).done_before
    assert f"{target} is damaged: {name}" in caplog.text
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
    assert import_array(store, target).done_before


def test_an_imported_store_that_is_damaged_is_not_read(tmp_path: Path) -> None:
    x, store = numbers(), tmp_path / "x.zarr"
    import_array(zarr_store(tmp_path / "raw.zarr", x), store)
    rankfold.svd(store, 2)
    first = sorted((store / "c").rglob("*/0"))[0]
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    for call in (lambda: rankfold.svd(store, 2), lambda: import_array(store, tmp_path / "y.zarr")):
        with pytest.raises(DataError, match=r"c/0/0 is not what was written.* remove its manifest\.json"):
            call()
    (store / "manifest.json").write_text("[]")  # that of somebody else
    rankfold.svd(store, 2)
    (store / "manifest.json").unlink()
    rankfold.svd(store, 2)


def test_a_store_that_lost_what_it_is_can_be_replaced(tmp_path: Path) -> None:
    store, target = zarr_store(tmp_path / "x.zarr", numbers()), tmp_path / "out.zarr"
    import_array(store, target, dtype="float64")
    (target / "zarr.json").unlink()
    with pytest.raises(OutputError, match=r"exists\. Say overwrite=True"):
        import_array(store, target)
    assert not import_array(store, target, overwrite=True).done_before


def test_the_same_import_of_a_file_again_is_done_already(tmp_path: Path) -> None:
    import scipy.sparse

    x = scipy.sparse.random(300, 50, 0.3, "csr", random_state=0)
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    first = import_array(tmp_path / "x.npz", tmp_path / "x.zarr")
    again = import_array(tmp_path / "x.npz", tmp_path / "x.zarr")
    assert again.done_before and again.nnz == first.nnz == x.nnz
    stored = sum(path.stat().st_size for path in (tmp_path / "x.zarr").rglob("c/*"))
    assert again.bytes_written == first.bytes_written == stored > 0
    scipy.sparse.save_npz(tmp_path / "x.npz", 2 * x, compressed=False)
    with pytest.raises(OutputError, match=r"exists\. Say overwrite=True"):
        import_array(tmp_path / "x.npz", tmp_path / "x.zarr")


def test_an_import_that_is_stopped_when_it_has_just_published_is_done(tmp_path: Path) -> None:
    code = """
import os, signal, sys, numpy as np
from rankfold.pipeline.importing import tiles
from rankfold.pipeline.importing import import_array
remove = tiles.shutil.rmtree
tiles.shutil.rmtree = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
import_array(sys.argv[1], sys.argv[2])
"""
    store, target = zarr_store(tmp_path / "x.zarr", numbers()), tmp_path / "out.zarr"
    ended = subprocess.run([sys.executable, "-c", code, store, target], check=False)
    assert ended.returncode == -signal.SIGKILL and target.exists()
    assert import_array(store, target).done_before


def test_what_is_published_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    rename, fsync = outputs.rename_new, os.fsync

    def note_rename(source: Path, target: Path) -> None:
        order.append(f"rename {Path(target).name}")
        rename(source, target)

    def note_fsync(opened: int) -> None:
        order.append(f"flush {Path(os.readlink(f'/proc/self/fd/{opened}')).name}")
        fsync(opened)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("names of open files are told by /proc, which this system does not have")
    monkeypatch.setattr(outputs, "rename_new", note_rename)
    monkeypatch.setattr(os, "fsync", note_fsync)
    import_array(open_source(np.ones((700, 3))), tmp_path / "x.zarr", chunk_bytes=1)
    named = order.index("rename x.zarr")
    assert {"flush 0", "flush c", "flush zarr.json", "flush array"} <= set(order[:named])
    folders = [name.partition(".partial-")[0] for name in order[named + 1 :]]
    assert sorted(folders) == sorted([f"flush {tmp_path.name}", "flush x.zarr"])  # its new folder and its old


def test_a_folder_that_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    with pytest.raises(OutputError, match="was not made by rankfold, so it is never replaced"):
        import_array(open_source(numbers()), tmp_path / "thesis", overwrite=True)
    with pytest.raises(OutputError, match=r"the folder .*nowhere does not exist"):
        import_array(open_source(numbers()), tmp_path / "nowhere" / "x.zarr")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_interrupted_import_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def interrupt(done: int, total: int) -> None:
        assert len(list(tmp_path.glob("x.zarr.partial-*"))) == 1
        if done > total // 2:
            raise error

    with pytest.raises(error):
        import_array(open_source(np.ones((2000, 3))), tmp_path / "x.zarr", chunk_bytes=1, progress=interrupt)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_import_leaves_no_store_and_the_next_one_clears_up(
    tmp_path: Path, how: signal.Signals
) -> None:
    code = f"""
import time, numpy as np
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array
def slow(done, total):
    print(done, flush=True)
    time.sleep(0.05)
import_array(open_source(np.ones((200_000, 3))), {str(tmp_path / "x.zarr")!r}, chunk_bytes=1, progress=slow)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout and process.stdout.readline()
    process.send_signal(how)
    assert process.wait(30) != 0
    process.stdout.close()
    assert not (tmp_path / "x.zarr").exists()
    assert len(list(tmp_path.iterdir())) == (how is signal.SIGKILL)
    import_array(open_source(numbers()), tmp_path / "x.zarr")
    assert os.listdir(tmp_path) == ["x.zarr"]


def test_leftovers_of_the_living_and_of_other_hosts_stay(tmp_path: Path) -> None:
    host = ingest.socket.gethostname()
    for name in (f"x.zarr.partial-{host}-{os.getppid()}", "x.zarr.partial-elsewhere-99999999"):
        (tmp_path / name).mkdir()
    (tmp_path / f"x.zarr.partial-{host}-99999999").mkdir()
    import_array(open_source(numbers()), tmp_path / "x.zarr")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_source_leaves_nothing(tmp_path: Path) -> None:
    path = KINDS["v3 gzip"](tmp_path, numbers())
    (path / "c/3/2").write_bytes(b"not gzip at all")
    with pytest.raises(ChunkError, match="chunk c/3/2"):
        import_array(open_source(path), tmp_path / "out.zarr")
    assert os.listdir(tmp_path) == ["x.zarr"]


def test_a_disk_known_to_be_too_small_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(ingest.shutil, "disk_usage", lambda path: usage(0, 0, 10_000_000))
    noise = np.random.default_rng(4).standard_normal((2000, 1000))
    with pytest.raises(
        DiskSpaceError, match=r"as none needs about 15\.\d MiB .*9\.54 MiB are free\. Free 5\.\d+ MiB"
    ):
        import_array(open_source(noise), tmp_path / "x.zarr")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zarr.Array, "__setitem__", full)
    with pytest.raises(DiskSpaceError, match=r"the disk of .*x\.zarr is full .*Nothing is left of it"):
        import_array(open_source(numbers()), tmp_path / "x.zarr")
    assert not list(tmp_path.iterdir())


# --- info


def test_every_source_is_described_and_json(tmp_path: Path) -> None:
    for name, make in KINDS.items():
        if name == "in a group":
            continue
        (folder := tmp_path / name).mkdir()
        info = describe(open_source(make(folder, numbers())))
        assert json.loads(json.dumps(info.as_dict()))["shape"] == [53, 37]
        assert info.memory_bytes == 53 * 37 * 4
        assert (info.stored_bytes > 0) == (not name.startswith(("numpy", "dask")))


def test_info_says_what_is_there(tmp_path: Path) -> None:
    info = describe(open_source(KINDS["v3 shards of blosc"](tmp_path, numbers())))
    assert info.format == "Zarr v3, shards of (20, 37)"
    assert (info.codec, info.chunks, info.chunk_count) == ("blosc(lz4, 5, shuffle)", (5, 37), 11)
    assert not info.splittable
    assert info.remarks[0].startswith("Tall: sweeps run along the 53 rows")
    wide = describe(open_source(numbers("i2").T.copy()))
    assert wide.remarks[0].startswith("Wide") and "Whole numbers" in wide.remarks[1]
    tall = describe(open_source(da.zeros((1_000_000, 400), chunks=(1_000_000, 1))))
    assert "must hold 2.98 GiB at a time" in tall.remarks[1] and "rankfold import" in tall.remarks[1]
