"""A page is one file that needs nothing else, and its pictures are what they say."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from rankfold.pipeline.exporting.plots.canvas import picture_output
from rankfold.workflows.reports.page import (
    DARK,
    LIGHT,
    WIDTH,
    Fact,
    ImageTile,
    Page,
    Picture,
    page_output,
    plain_text,
    render,
    scree,
    take_picture,
    tile_grid,
    write_page,
)


class Elements(HTMLParser):
    """Start tags with their attributes, and the text between tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def picture(folder: Path) -> Picture:
    tiles = [ImageTile(np.full((2, 2, 3), shade), "left", "right") for shade in (0.0, 0.5, 1.0)]
    return take_picture(
        picture_output(folder / "tiles.png", overwrite=True),
        lambda theme: tile_grid(tiles, 3, "Three", theme),
        title="Tiles",
        caption="Black & white",
        alt="Three 'tiles'",
    )


def page(folder: Path, title: str = "A page") -> Page:
    facts = [Fact("size", "3 GiB", "on disk"), Fact("folder", "/a/very/long/path")]
    return Page(
        title,
        "Lead.",
        facts[:1],
        facts,
        ["something to know"],
        [picture(folder)],
        "rankfold demo",
        "x = 1",
        "rankfold 0",
    )


def read_png(data: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(data), format="png")


def test_page_asks_for_nothing_outside_itself(tmp_path: Path) -> None:
    text = render(page(tmp_path), "demo")
    assert "http://" not in text and "https://" not in text and "url(" not in text and "@import" not in text
    tags = Elements(text).tags
    assert {tag for tag, _ in tags}.isdisjoint({"script", "link", "iframe", "object", "a"})
    sources = [value for _, attrs in tags for key, value in attrs.items() if key in ("src", "srcset", "href")]
    assert len(sources) == 2
    assert all(value is not None and value.startswith("data:image/png;base64,") for value in sources)


def test_every_image_is_described_and_has_its_size(tmp_path: Path) -> None:
    images = [attrs for tag, attrs in Elements(render(page(tmp_path), "demo")).tags if tag == "img"]
    assert [attrs["alt"] for attrs in images] == ["Three 'tiles'"]
    height, width = read_png((tmp_path / "tiles.png").read_bytes()).shape[:2]
    assert (images[0]["width"], images[0]["height"]) == (str(width), str(height))


def test_text_is_escaped(tmp_path: Path) -> None:
    text = render(page(tmp_path, title="<script>alert('&')</script>"), "demo")
    assert "<script" not in text
    assert "<script>alert('&')</script>" in Elements(text).text


def test_page_shows_all_it_is_given(tmp_path: Path) -> None:
    shown = Elements(render(page(tmp_path), "demo")).text
    given = {"A page", "Lead.", "3 GiB", "on disk", "something to know", "Black & white", "rankfold demo"}
    assert given <= set(shown)


def test_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(page(tmp_path), page_output(path, "demo", overwrite=False), "demo")
    assert path.read_text(encoding="utf-8") == render(page(tmp_path), "demo")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html", "tiles.png"]


def test_the_same_figure_is_the_same_bytes(tmp_path: Path) -> None:
    assert picture(tmp_path) == picture(tmp_path)


def test_tiles_keep_their_colors_on_whole_pixels(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    colors = rng.integers(0, 256, (4, 4, 3)) / 255
    drawn = picture_of(tile_grid([ImageTile(colors, "", "")], 2, "", LIGHT))
    inked = (drawn < 1).any(axis=2)
    left, top = int(inked.any(axis=0).argmax()), int(inked.any(axis=1).argmax())
    size = int(inked.any(axis=0).sum())
    assert size % 4 == 0
    expected = np.kron(colors, np.ones((size // 4, size // 4, 1)))
    np.testing.assert_allclose(drawn[top : top + size, left : left + size], expected, atol=0.6 / 255)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("rank", [1, 2, 5, 32])
def test_scree_is_drawn_for_any_rank(rank: int, theme) -> None:
    ratio = 0.5 ** np.arange(1, rank + 1)
    errors = np.full(rank, 1e-3)
    errors[-1] = np.inf
    assert picture_of(scree(ratio, errors, "Scree", theme)).shape[1] == WIDTH


def test_dark_and_light_differ_in_more_than_paper(tmp_path: Path) -> None:
    drawn = picture(tmp_path)
    light, dark = read_png(drawn.light), read_png(drawn.dark)
    assert light.shape == dark.shape
    assert light[0, 0, :3].min() > 0.9 and dark[0, 0, :3].max() < 0.2


def test_plain_text_is_aligned() -> None:
    facts = [Fact("a", "1", "first"), Fact("longer", "22", "second"), Fact("c", "/a/very/long/path")]
    assert plain_text(facts).splitlines() == [
        "a       1   first",
        "longer  22  second",
        "c       /a/very/long/path",
    ]


def picture_of(figure) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3] / 255


def test_axes_of_a_scree_plot_say_what_they_are_and_labels_lie_at_their_points() -> None:
    ratio = np.geomspace(0.5, 0.01, 16)
    figure = scree(0.95 * ratio / ratio.sum(), np.full(16, 1e-3), "Variance", LIGHT)
    figure.canvas.draw()
    upper, lower = figure.axes
    assert upper.get_title(loc="left") and lower.get_title(loc="left") and lower.get_xlabel() == "component"
    for label in lower.texts:
        place = lower.transData.transform(label.xy)
        others = [lower.transData.transform((k, y)) for k, y in zip(*lower.lines[0].get_data(), strict=True)]
        box = label.get_window_extent()
        middle = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
        nearest = min(others, key=lambda point: float(np.hypot(*(point - middle))))
        assert np.allclose(nearest, place), label.get_text()
