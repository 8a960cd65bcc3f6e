"""The demo writes every patch once, in order, and its page says what the record says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import rankfold
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.demo import (
    CHUNK_ROWS,
    COLUMNS,
    RANK,
    SIDE,
    Photograph,
    crop_of,
    patch_blocks,
    reconstruct,
    run_demo,
    sample_photographs,
    write_patches,
)
from rankfold.workflows.reports.page import WIDTH


def photographs() -> list[Photograph]:
    """Two small ones of different size: smooth ground, a little noise."""
    rng = np.random.default_rng(0)
    made = []
    for name, (height, width) in {"one.jpg": (40, 48), "two.jpg": (27, 33)}.items():
        rows, columns = np.mgrid[:height, :width]
        waves = [60 * np.sin(rows / 5) + 50 * np.cos(columns / length) for length in (7, 5, 3)]
        ground = 120 + np.stack(waves, axis=-1)
        pixels = (ground + rng.normal(0, 5, (height, width, 3))).clip(0, 255).astype(np.uint8)
        made.append(Photograph(name, pixels, (9, 9)))
    return made


def brute_force(images: list[Photograph]) -> np.ndarray:
    rows = []
    for image in images:
        height, width, _ = image.pixels.shape
        for top in range(height - SIDE + 1):
            for left in range(width - SIDE + 1):
                rows.append(image.pixels[top : top + SIDE, left : left + SIDE].ravel())
    return np.asarray(rows, np.float32) / np.float32(255)


@dataclass
class Ran:
    folder: Path
    page: Path
    said: str


def ran(folder: Path, **options) -> Ran:
    said: list[str] = []
    page = run_demo(folder, say=said.append, load=photographs, threads=2, **options)
    return Ran(folder, page, "\n".join(said))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("demo") / "out")


@given(rows=st.integers(1, 2000))
def test_any_block_size_gives_all_patches_in_order(rows: int) -> None:
    blocks = [block.copy() for block in patch_blocks(photographs(), rows)]
    assert {len(block) for block in blocks[:-1]} <= {rows}
    np.testing.assert_array_equal(np.concatenate(blocks), brute_force(photographs()))


def test_store_holds_every_patch_in_plain_chunks(tmp_path: Path) -> None:
    write_patches(tmp_path / "patches.zarr", photographs(), rows_per_chunk=300)
    array = zarr.open_array(tmp_path / "patches.zarr", mode="r")
    assert array.metadata.zarr_format == 3
    assert (array.dtype, array.chunks, array.compressors) == (np.float32, (300, COLUMNS), ())
    np.testing.assert_array_equal(array[...], brute_force(photographs()))
    assert [entry.name for entry in tmp_path.iterdir()] == ["patches.zarr"]


def test_interrupted_writing_leaves_no_store(tmp_path: Path) -> None:
    def stop(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_patches(tmp_path / "patches.zarr", photographs(), rows_per_chunk=300, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_what_comes_to_have_the_name_meanwhile_stays(tmp_path: Path) -> None:
    store = tmp_path / "patches.zarr"

    def come(name: str, done: int, total: int) -> None:
        if not store.exists():
            store.mkdir()
            (store / "mine.txt").write_text("precious")

    with pytest.raises(OutputError, match="stays as it is"):
        write_patches(store, photographs(), rows_per_chunk=300, progress=come)
    assert (store / "mine.txt").read_text() == "precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["patches.zarr"]


def test_what_a_killed_run_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".patches.zarr.part" / "c").mkdir(parents=True)
    write_patches(tmp_path / "patches.zarr", photographs())
    assert [entry.name for entry in tmp_path.iterdir()] == ["patches.zarr"]


def test_components_are_those_of_the_patches(demo: Ran) -> None:
    x = brute_force(photographs()).astype(np.float64)
    exact = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    result = rankfold.open_result(demo.folder / "pca.zarr")
    # Float32 data; the estimate is of these very errors.
    np.testing.assert_allclose(result.singular_values, exact[:RANK], rtol=1e-4)


def test_second_run_does_nothing_again(demo: Ran) -> None:
    names = ("patches.zarr/zarr.json", "pca.zarr/zarr.json", "pca.zarr.run/run.json")
    kept = [demo.folder / name for name in names]
    before = [path.stat().st_mtime_ns for path in kept]
    again = ran(demo.folder)
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert "already there" in again.said and "already done" in again.said
    assert "already" not in demo.said
    assert numbers(again.said) == numbers(demo.said)


def test_result_of_patches_that_are_gone_is_replaced(tmp_path: Path) -> None:
    ran(tmp_path)
    (tmp_path / "patches.zarr").rename(tmp_path / "elsewhere.zarr")
    assert "already" not in ran(tmp_path).said


def test_damaged_patches_are_written_again(tmp_path: Path) -> None:
    write_patches(tmp_path / "patches.zarr", photographs())
    (tmp_path / "patches.zarr" / "c" / "0" / "0").write_bytes(b"short")
    assert "already" not in ran(tmp_path).said
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "patches.zarr")[...], brute_force(photographs()))


def test_result_of_another_request_is_kept(tmp_path: Path) -> None:
    write_patches(tmp_path / "patches.zarr", photographs())
    rankfold.pca(tmp_path / "patches.zarr", 3, out=tmp_path / "pca.zarr", memory="256MiB")
    with pytest.raises(OutputError, match="another request"):
        ran(tmp_path)


@pytest.mark.parametrize("shape", [None, (5, 4)])
def test_something_else_under_the_name_is_kept(tmp_path: Path, shape: tuple[int, int] | None) -> None:
    store = tmp_path / "patches.zarr"
    if shape is None:
        store.mkdir()
    else:
        zarr.create_array(store, shape=shape, dtype="float32")
    with pytest.raises(OutputError, match="not what the demo writes"):
        ran(tmp_path)
    assert store.exists()


def test_missing_scikit_learn_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=re.escape("pip install scikit-learn")):
        sample_photographs()


def numbers(said: str) -> dict[str, str]:
    """The closing table: label to value."""
    table = said.partition("\n\n")[2].splitlines()
    return {cells[0]: cells[1] for cells in (re.split(r"\s{2,}", line) for line in table)}


def test_summary_is_what_the_record_says(demo: Ran) -> None:
    result = rankfold.open_result(demo.folder / "pca.zarr")
    attempt = json.loads((demo.folder / "pca.zarr.run" / "run.json").read_text())["attempts"][-1]
    rows = len(brute_force(photographs()))
    said = numbers(demo.said)
    assert said["matrix"] == f"{rows:,} x {COLUMNS}"
    assert said["size"] == format_bytes(rows * COLUMNS * 4)
    assert said["passes"] == str(attempt["passes"])
    assert said["bytes read"] == format_bytes(attempt["passes"] * rows * COLUMNS * 4)
    assert said["memory budget"] == "256 MiB"
    for label, key in (("planned", "planned_bytes"), ("measured", "measured_bytes")):
        value = attempt[key]
        assert said[f"peak {label}"] == ("not recorded" if value is None else format_bytes(value))
    assert said["largest error"] == f"{result.attrs['largest_error_estimate']:.1e}"
    assert said["captured"] == f"{100 * result.attrs['captured']:.2f} %"
    assert said["time"] == f"{attempt['seconds']:.3g} s"
    assert said["page"] == str(demo.page) == str(demo.folder / "report.html")


def test_page_holds_the_same_numbers_and_nothing_from_elsewhere(demo: Ran) -> None:
    text = demo.page.read_text(encoding="utf-8")
    for value in numbers(demo.said).values():
        assert value in text
    assert "http://" not in text and "https://" not in text
    sources = re.findall(r'\b(?:src|srcset|href)="([^"]*)"', text)
    assert len(sources) == 6 and all(source.startswith("data:image/png;base64,") for source in sources)


def test_numbers_that_were_not_kept_are_not_made_up(tmp_path: Path) -> None:
    ran(tmp_path)
    (tmp_path / "pca.zarr.run" / "run.json").unlink()
    said = numbers(ran(tmp_path).said)
    labels = ("memory budget", "peak planned", "peak measured", "baseline", "time")
    assert {said[label] for label in labels} == {"not recorded"}


@pytest.mark.parametrize("name", ["components.png", "reconstruction.png", "scree.png"])
def test_pictures_decode_and_are_of_one_width(demo: Ran, name: str) -> None:
    image = matplotlib.image.imread(demo.folder / name)
    assert image.shape[1] == WIDTH and 500 < image.shape[0] < 1300
    assert image[:, :, :3].std() > 0.02


def test_script_of_the_page_runs_and_finds_the_result(demo: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    text = demo.page.read_text(encoding="utf-8")
    script = re.findall(r"<pre><code>(import.*?)</code>", text, re.S)[0].replace("&#39;", "'")
    assert len(script.splitlines()) == 5
    exec(script, {})
    assert f"({RANK}, {COLUMNS})" in capsys.readouterr().out


def test_all_components_give_the_photograph_back() -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((COLUMNS, COLUMNS)))[0].T
    crop = crop_of(photographs()[0])
    # A product with an orthogonal matrix of 192 columns loses a few ulp.
    np.testing.assert_allclose(reconstruct(crop, np.full(COLUMNS, 0.4), basis), crop, atol=1e-13)
    assert crop.shape == (40, 40, 3)


@pytest.mark.slow
def test_real_demo_stays_within_plan_and_budget(tmp_path: Path) -> None:
    """In a process of its own: what other tests leave in the heap would hide part of the peak."""
    code = "import pathlib, sys, rankfold.workflows.demo as d; d.run_demo(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    array = zarr.open_array(tmp_path / "patches.zarr", mode="r")
    assert array.shape[0] > 500_000 and array.shape[1] == 192 and array.nbytes > 400e6
    assert array.chunks == (CHUNK_ROWS, 192)
    attempt = rankfold.open_result(tmp_path / "pca.zarr").run["attempts"][-1]
    assert attempt["planned_bytes"] <= 256 * 2**20 < array.nbytes
    if attempt["measured_bytes"] is None:
        pytest.skip("this system does not tell how much memory a process holds: only the plan was checked")
    assert attempt["measured_bytes"] <= attempt["planned_bytes"]
