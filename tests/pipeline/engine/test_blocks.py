"""Whatever the store looks like, cuts cover the axis once, in whole chunks, and streams fill a tree."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.pipeline.data.grid import GRAIN_BYTES_CEILING, Grid
from rankfold.pipeline.engine.blocks import (
    GRAIN_BYTES,
    GRAIN_ROWS_FLOOR,
    READS_PER_BYTE,
    Cut,
    cut,
    grain_rows,
    grains,
    panel_edges,
    stream_count,
)
from rankfold.pipeline.errors import PlanError

ROW_BYTES = st.integers(1, 10**7) | st.sampled_from([1, 4, 2**20, 2**28, 2**29])


@st.composite
def grids(draw: st.DrawFn, splittable: bool | None = None) -> Grid:
    """Regular grids, and any other."""
    split = draw(st.booleans()) if splittable is None else splittable
    if draw(st.booleans()):
        return Grid.regular(
            draw(st.integers(1, 10**6)), draw(st.integers(10**3, 2 * 10**6)), splittable=split
        )
    sizes = draw(st.lists(st.integers(1, 20) | st.integers(1, 10**5), min_size=1, max_size=40))
    return Grid(np.cumsum([0, *sizes], dtype=np.int64), split)


def sizes(edges: npt.NDArray[np.int64]) -> list[int]:
    return [int(size) for size in np.diff(edges)]


@given(length=st.integers(1, 10**12), chunk=st.integers(1, 10**12))
def test_regular_chunks_cover_the_axis(length: int, chunk: int) -> None:
    chunk = max(chunk, length // 1000 + 1)
    grid = Grid.regular(length, chunk, splittable=False)
    assert grid.edges[0] == 0 and grid.length == length
    assert set(sizes(grid.edges)[:-1]) <= {chunk} and 0 < sizes(grid.edges)[-1] <= chunk
    assert grid.longest == min(length, chunk)


@given(length=st.integers(1, 60), chunk=st.integers(1, 70), rows=st.integers(1, 40), split=st.booleans())
def test_chunks_of_one_length_are_as_if_written_out(length: int, chunk: int, rows: int, split: bool) -> None:
    even = Grid.regular(length, chunk, splittable=split)
    written = Grid(even.edges, split)
    assert (even.length, even.longest, even.count) == (written.length, written.longest, written.count)
    assert panel_edges(even, rows).tolist() == panel_edges(written, rows).tolist()
    assert all(even.chunk_of(place) == written.chunk_of(place) for place in range(length))


@pytest.mark.parametrize("chunk", [1, 1000, 10**12])
def test_more_panels_than_can_be_planned_are_refused(chunk: int) -> None:
    with pytest.raises(PlanError, match=r"an axis falls into \d+ pieces, and at most 16777216"):
        cut(Grid.regular(10**12, chunk, splittable=True), 8000, 8000)


@given(grid=grids(), rows=st.integers(1, 10**5))
def test_panels_cover_the_axis_in_whole_chunks(grid: Grid, rows: int) -> None:
    rows = max(rows, grid.length // 1000)
    edges = panel_edges(grid, rows)
    assert edges[0] == 0 and edges[-1] == grid.length
    assert min(sizes(edges)) > 0
    chunks = set(grid.edges.tolist())
    for start, stop in pairwise(edges.tolist()):
        alone = np.searchsorted(grid.edges, start, "right") == np.searchsorted(grid.edges, stop, "left")
        if not grid.splittable:
            assert {start, stop} <= chunks
            assert stop - start <= rows or alone
        else:
            assert stop - start <= rows
            assert {start, stop} <= chunks or alone, "a panel is whole chunks, or a part of one"


@given(grid=grids(splittable=False), rows=st.integers(1, 10**5))
def test_no_panel_could_take_one_more_chunk(grid: Grid, rows: int) -> None:
    edges = panel_edges(grid, rows).tolist()
    following = dict(zip(grid.edges[:-1].tolist(), sizes(grid.edges), strict=True))
    for start, stop in pairwise(edges[:-1]):
        assert stop - start + following[stop] > rows


@given(grid=grids(), row_bytes=ROW_BYTES, accumulator=st.integers(1, 10**9), least=st.integers(1, 10**4))
def test_chunks_that_need_no_splitting_are_cut_the_same(
    grid: Grid, row_bytes: int, accumulator: int, least: int
) -> None:
    rows = max(grain_rows(row_bytes), least)
    either = [
        cut(Grid(grid.edges, splittable), row_bytes, accumulator, least_rows=least)
        for splittable in (False, True)
    ]
    if grid.longest <= rows:
        for name in ("panels", "streams"):
            np.testing.assert_array_equal(getattr(either[0], name), getattr(either[1], name))
    assert {c.grain_rows for c in either} == {rows}


@given(start=st.integers(0, 10**9), count=st.integers(0, 10**4), rows=st.integers(1, 10**4))
def test_grains_are_the_fewest_and_nearly_equal(start: int, count: int, rows: int) -> None:
    pieces = list(grains(start, start + count, rows))
    assert len(pieces) == -(-count // rows)
    heights = [b - a for a, b in pieces]
    assert sum(heights) == count and max(heights, default=0) <= rows
    assert not heights or max(heights) - min(heights) <= 1
    assert [a for a, _ in pieces[1:]] == [b for _, b in pieces[:-1]]
    assert not pieces or pieces[0][0] == start


@given(row_bytes=ROW_BYTES, device=st.sampled_from(sorted(GRAIN_BYTES)))
def test_grains_fill_the_cache_and_not_the_memory(row_bytes: int, device: str) -> None:
    rows, grain_bytes = grain_rows(row_bytes, device), GRAIN_BYTES[device]
    assert rows >= 1
    assert rows == 1 or rows * row_bytes <= max(grain_bytes, GRAIN_BYTES_CEILING)
    assert rows >= GRAIN_ROWS_FLOOR or (rows + 1) * row_bytes > GRAIN_BYTES_CEILING
    assert rows <= GRAIN_ROWS_FLOOR or rows * row_bytes <= grain_bytes
    assert rows >= grain_rows(row_bytes + 1, device)


@given(grid=grids(), row_bytes=ROW_BYTES, accumulator=st.integers(1, 10**6))
def test_a_device_takes_larger_grains_and_fewer_streams(grid: Grid, row_bytes: int, accumulator: int) -> None:
    host, device = (cut(grid, row_bytes, accumulator, device=kind) for kind in ("cpu", "gpu"))
    assert device.grain_rows >= host.grain_rows and device.stream_count <= host.stream_count
    assert set(device.panels.tolist()) <= set(host.panels.tolist()) or grid.splittable


@given(
    panels=st.integers(1, 10**6),
    per_panel=st.integers(1, 100),
    data=st.integers(1, 10**15),
    accumulator=st.integers(1, 10**10),
)
def test_streams_are_the_largest_power_of_two_in_bounds(
    panels: int, per_panel: int, data: int, accumulator: int
) -> None:
    def allowed(count: int) -> bool:
        enough = 8 * count <= panels * per_panel and READS_PER_BYTE * accumulator * count <= data
        return count == 1 or (count <= min(panels, 8192) and enough)

    count = stream_count(panels, panels * per_panel, data, accumulator)
    assert count.bit_count() == 1
    assert allowed(count) and not allowed(2 * count)


@given(grid=grids(), row_bytes=ROW_BYTES, accumulator=st.integers(1, 10**6))
def test_streams_cover_the_panels_evenly(grid: Grid, row_bytes: int, accumulator: int) -> None:
    found: Cut = cut(grid, row_bytes, accumulator)
    panels = len(found.panels) - 1
    assert found.streams[0] == 0 and found.streams[-1] == panels
    assert found.stream_count.bit_count() == 1
    assert min(sizes(found.streams)) >= 1
    assert max(sizes(found.streams)) - min(sizes(found.streams)) <= 1


@given(grid=grids(), row_bytes=ROW_BYTES)
def test_a_cut_knows_its_own_numbers(grid: Grid, row_bytes: int) -> None:
    found = cut(grid, row_bytes, 1)
    spans = [found.panel(i) for i in range(len(found.panels) - 1)]
    assert found.length == grid.length == sum(stop - start for start, stop in spans)
    assert found.panel_rows == max(stop - start for start, stop in spans)
    assert found.grain_count == sum(1 for span in spans for _ in grains(*span, found.grain_rows))
    assert all(type(edge) is int for span in spans for edge in span)


@given(grid=grids(), row_bytes=ROW_BYTES, least=st.integers(1, 10**6))
def test_taller_grains_are_made_on_request_only(grid: Grid, row_bytes: int, least: int) -> None:
    assert cut(grid, row_bytes, 1, least_rows=least).grain_rows == max(least, grain_rows(row_bytes))
