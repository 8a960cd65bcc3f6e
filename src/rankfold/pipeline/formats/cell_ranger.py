"""Names of cells and genes of Cell Ranger (10x Genomics), in HDF5 files and next to MatrixMarket files.

Its matrices are genes x cells, compressed by cells. The same numbers in the same order are a matrix of cells
x genes, compressed by rows:
https://www.10xgenomics.com/support/software/cell-ranger/latest/analysis/outputs/cr-outputs-h5-matrices.

=================== ========================= ==========================================
file                barcodes of cells         names of genes
=================== ========================= ==========================================
HDF5, version 3     ``matrix/barcodes``       ``matrix/features/name``, with types
HDF5, version 2     ``GENOME/barcodes``       ``GENOME/gene_names``
``matrix.mtx.gz``   ``barcodes.tsv.gz``       second column of ``features.tsv.gz``, types in the third
``matrix.mtx``      ``barcodes.tsv``          second column of ``genes.tsv``
=================== ========================= ==========================================

Features may be of several types. By default only genes are read, as ``scanpy.read_10x_h5`` does.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError, SourceNotFoundError
from rankfold.pipeline.formats.locate import node_kind

LOG = logging.getLogger("rankfold")

GENES = "Gene Expression"
"""The type of features that are genes."""

PARTS = ("data", "indices", "indptr", "shape", "barcodes")
"""Datasets that every matrix in HDF5 has, in addition to the names of its genes."""

NAMES = ("features/name", "gene_names")
"""Paths of the dataset with the names of genes, in version 3 and in version 2."""

TYPES = "features/feature_type"


def is_matrix(group: Any) -> bool:
    """True if a group of an HDF5 file is a matrix of Cell Ranger."""
    return all(hasattr(group.get(part), "shape") for part in PARTS) and _names(group) is not None


def _names(group: Any) -> Any:
    return next((group[name] for name in NAMES if hasattr(group.get(name), "shape")), None)


def labels_of_matrix(root: Any, path: str, number: int) -> tuple[str, Any] | None:
    """Name and labels of axis ``number``, cells (0) or genes (1), of the matrix at a path; None for others.

    ``root`` is the open HDF5 file; the name is ``obs`` or ``var``.
    """
    group = root[path]
    if number > 1 or not hasattr(group, "keys") or not is_matrix(group):
        return None
    return ("obs", group["barcodes"]) if number == 0 else ("var", _names(group))


def matrix_of_type(root: Any, path: str) -> tuple[str, str] | None:
    """Split a path such as ``matrix/Antibody Capture`` into group and feature type; None for other paths.

    ``root`` is the open HDF5 file.
    """
    name, _, kind = path.rpartition("/")
    group = root.get(name) if name and path not in root else None
    return (name, kind) if group is not None and hasattr(group, "keys") and is_matrix(group) else None


def types_in(group: Any) -> list[str]:
    """Type of each feature of the matrix in an HDF5 group; empty if the file has no types."""
    types = group.get(TYPES)
    return [] if types is None else [str(each) for each in types.asstr(errors="replace")[...]]


def features_of_type(store: str, whole: str, types: Sequence[str], kind: str) -> npt.NDArray[np.bool_] | None:
    """Mask of the features of a type; by default genes, with a warning if there are others too.

    Parameters
    ----------
    store, whole : str
        Names in messages of the file, and of the location of all of its features.
    types : sequence of str
        Type of each feature.
    kind : str
        The type that was asked for, empty for the default.

    Returns
    -------
    (n,) array of bool, optional
        True for features that are kept; None for all.
    """
    counts = Counter(types)
    if kind and kind not in counts:
        listed = ", ".join(f"{each} ({count})" for each, count in counts.items()) or "none"
        raise SourceNotFoundError(f"{store} has no features of type {kind!r}. It has {listed}")
    if len(counts) < 2 or (not kind and GENES not in counts):
        return None
    chosen: npt.NDArray[np.bool_] = np.asarray(types) == (kind or GENES)
    if not kind:
        others = ", ".join(f"{each} ({count})" for each, count in counts.items() if each != GENES)
        LOG.warning(
            "%s holds other features than genes: %s. The %d of %s are read; %s names all of them, %s/TYPE "
            "those of a type",
            *(store, others, counts[GENES], GENES, whole, whole),
        )
    return chosen


# Files of text ------------------------------------------------------------------------------------


MATRICES = ("matrix.mtx", "matrix.mtx.gz")
"""Endings of names of matrices in folders that Cell Ranger wrote."""


class Files(NamedTuple):
    """Paths of a matrix of genes x cells and of the files with their names."""

    matrix: str
    barcodes: str
    features: str


def files_at(path: str) -> Files | None:
    """The files of Cell Ranger in a folder, or of a matrix at a path like ``matrix.mtx.gz``; None for others.

    A Zarr store never counts as such a folder, whatever else it contains.

    All names may begin with the same prefix, as those of files of GEO do.

    Raises
    ------
    InputError
        A folder holds several matrices.
    """
    if not os.path.isdir(path):
        return _beside(path)
    if node_kind(path) is not None:
        return None
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith(MATRICES))
    found = [files for name in names if (files := _beside(os.path.join(path, name))) is not None]
    if len({files.barcodes for files in found}) > 1:
        listed = ", ".join(os.path.basename(files.matrix) for files in found)
        raise InputError(f"{path} holds several matrices, {listed}. Name one: {found[0].matrix}")
    return found[-1] if found else None


def _beside(matrix: str) -> Files | None:
    ending = next((each for each in MATRICES if matrix.endswith(each)), None)
    if ending is None:
        return None
    start = matrix.removesuffix(ending)
    if start and not start.endswith(("_", "-", ".", os.sep)):
        return None
    barcodes, features = _first(start, "barcodes"), _first(start, "features", "genes")
    return None if barcodes is None or features is None else Files(matrix, barcodes, features)


def _first(start: str, *words: str) -> str | None:
    places = (f"{start}{word}.tsv{end}" for word in words for end in (".gz", ""))
    return next((place for place in places if os.path.exists(place)), None)
