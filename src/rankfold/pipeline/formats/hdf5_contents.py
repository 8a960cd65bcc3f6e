"""Which matrix of an HDF5 file is meant, by the conventions of the software that wrote it.

================= ======================== ====================================== ==========================
written by        default matrix           recognized by                          layout
================= ======================== ====================================== ==========================
AnnData           ``X``                    ``obs``, ``var``                       dense, CSR, CSC
MuData            ``X`` of the modality    ``mod``                                of AnnData
10x Genomics      ``matrix``, the genome   ``barcodes`` and names of genes        CSC of genes x cells
loom              ``matrix``               ``row_attrs``, ``col_attrs``           dense, genes x cells
MATLAB 7.3        the only one             attribute ``MATLAB_class``             axes reversed; CSC
others            the only one                                                    dense
================= ======================== ====================================== ==========================

A matrix of genes x cells that is compressed by cells is read as cells x genes, compressed by rows.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import whole_lengths
from rankfold.pipeline.data.stacked import Rows
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import cell_ranger
from rankfold.pipeline.formats.csr import ENCODINGS
from rankfold.pipeline.formats.frame_columns import is_frame_group, text_of
from rankfold.pipeline.formats.naming import is_loom
from rankfold.pipeline.formats.open_files import choose, list_names

HDF5_SUFFIXES = (".h5", ".hdf5", ".h5ad", ".h5mu", ".he5", ".loom", ".mat")
"""Endings of names of HDF5 files."""

OLD_ENCODINGS = {"csr": "rows", "csc": "columns"}
"""Lines that are stored contiguously, rows or columns, by AnnData's name of the layout before version 0.7."""

MOST_LINKS = 16
"""Largest number of links, one leading to the next, that are followed to a matrix, as by HDF5."""

NO_NUMBERS = ("char", "cell", "struct", "function_handle", "string", "table")
"""Classes of MATLAB that are not arrays of numbers."""


@dataclass(frozen=True, slots=True)
class SparseLayout:
    """Layout of a group that holds a sparse matrix."""

    by: str
    """Axis of the lines that are stored contiguously: ``rows`` (CSR) or ``columns`` (CSC)."""

    shape: Any
    """Rows and columns as the file states them, unchecked."""

    parts: tuple[str, str, str] = ("data", "indices", "indptr")
    """Names of the datasets of stored values, their indices (columns of CSR, rows of CSC), and pointers."""

    def lengths(self, name: str) -> tuple[int, int]:
        """Numbers of rows and columns; ``InputError``, about the matrix ``name``, if they are not valid."""
        rows, columns = whole_lengths(name, self.shape)
        return rows, columns


def sparse_layout(group: Any) -> SparseLayout | None:
    """Layout of an open HDF5 group that holds a sparse matrix; None for other groups."""
    said = group.attrs
    if (by := ENCODINGS.get(text_of(said.get("encoding-type")))) is not None:
        return SparseLayout(by, said.get("shape"))
    if (by := OLD_ENCODINGS.get(text_of(said.get("h5sparse_format")))) is not None:
        return SparseLayout(by, said.get("h5sparse_shape"))
    if cell_ranger.is_matrix(group):
        shape = group["shape"]
        return SparseLayout("rows", np.asarray(shape[...])[::-1] if shape.shape == (2,) else None)
    if "MATLAB_sparse" in said and hasattr(group.get("jc"), "shape"):
        return SparseLayout(
            "columns", [int(said["MATLAB_sparse"]), int(group["jc"].shape[0]) - 1], ("data", "ir", "jc")
        )
    return None


@dataclass(frozen=True, slots=True)
class Found:
    """A matrix found in a file."""

    path: str
    """Path of its dataset or group in the file."""

    layout: SparseLayout | None = None
    """Layout of a group that is a sparse matrix; None for datasets and data frames."""

    columns: str | None = None
    """Columns that are kept, as text such as ``0:2000``; None for all."""

    axes: tuple[str, ...] | None = None
    """Names of its axes, in a kind of file that implies them; None to take them from the dataset."""

    turned: bool = False
    """True if its last axis becomes the rows."""

    grows: bool = False
    """True if other datasets may be added to the file later, as in files of AnnData."""

    def rows(self, path: str, rows: Rows) -> Rows:
        """Axes that become the rows: ``rows`` of the caller, or else those that its kind of file implies.

        ``path`` is that of the file, for the message.

        Raises
        ------
        InputError
            Axes are given by number, but are stored in another order than they are numbered.
        """
        if not self.turned or self.axes is None:
            return rows
        if rows is None:
            return self.axes[-1] if len(self.axes) == 2 else None
        words = rows.split(",") if isinstance(rows, str) else rows if isinstance(rows, Sequence) else [rows]
        if any(str(word).strip().isdecimal() for word in words):
            raise InputError(
                f"{path}::{self.path} does not store its axes in the order in which they are counted: give "
                f"rows by name, row_axes={self.axes[-1]!r} (--row-axes), of {', '.join(self.axes)}"
            )
        return rows


def find_matrix(h5py: Any, file: Any, path: str, text: str) -> Found:
    """The matrix that ``text`` names in an open file; the default matrix of its kind of file if it is empty.

    ``h5py`` is the module, ``path`` that of the file, for messages.

    Raises
    ------
    SourceNotFoundError, InputError
        There is none, or several, which the message names; or it is a group without a matrix.
    """
    name, kind = cell_ranger.matrix_of_type(file, text) or (_place(h5py, file, text), "")
    shapes = _matrices(h5py, file)
    node = file.get(name) if name else None
    if isinstance(node, h5py.Group) and is_frame_group(node):
        return Found(name, grows=True)
    if node is not None and name not in shapes:  # a second name of a matrix, which is listed once
        shapes |= _shape_of(h5py, name, node)
    if name not in shapes and isinstance(node, h5py.Group):
        raise InputError(
            f"{path}::{name} is a group of {', '.join(file[name])}, not a matrix. {list_names(path, shapes)}"
        )
    name = choose(path, name, shapes)
    node, grows = file[name], "obs" in file and "var" in file
    if isinstance(node, h5py.Group):
        layout, columns = sparse_layout(node), None
        if cell_ranger.is_matrix(node) and (kind or name != text):
            types = cell_ranger.types_in(node)
            chosen = cell_ranger.features_of_type(path, f"{path}::{name}", types, kind)
            columns = None if chosen is None else _in_words(chosen)
        return Found(name, layout, columns, grows=grows)
    if is_loom(file) and node.ndim == 2:
        return Found(name, axes=("gene", "cell"), turned=True)
    if "MATLAB_class" in node.attrs:
        return _of_matlab(path, name, node)
    return Found(name, grows=grows)


def matrices_beside(h5py: Any, file: Any, path: str) -> tuple[str, ...]:
    """Paths of the arrays of two axes or more in an open HDF5 file; the first is its default matrix."""
    meant = find_matrix(h5py, file, path, "").path
    wide = [name for name, shape in _matrices(h5py, file).items() if len(shape) >= 2 and name != meant]
    return (meant, *wide)


def _in_words(chosen: npt.NDArray[np.bool_]) -> str:
    """Ranges of the indices where the mask ``chosen`` is True, as text.

    >>> _in_words(np.array([True, True, False, True]))
    '0:2,3:4'
    """
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False)).reshape(-1, 2)
    return ",".join(f"{start}:{stop}" for start, stop in edges)


def _place(h5py: Any, file: Any, text: str) -> str:
    """Path in a file that ``text`` names, or of the default matrix if it is empty.

    Empty if the kind of file has no default, so that its only matrix is meant.
    """
    text = text.strip("/")
    if "mod" in file and isinstance(file["mod"], h5py.Group):
        names = list(file["mod"])
        meant = text or (names[0] if len(names) == 1 else "")
        modality, _, rest = meant.removeprefix("mod/").partition("/")
        return f"mod/{modality}/{rest or 'X'}" if modality in names else text
    if text:
        return text
    if {"X", "obs", "var"} <= set(file):
        return "X"
    return "matrix" if is_loom(file) else ""


def _matrices(h5py: Any, file: Any) -> dict[str, tuple[int, ...]]:
    """Path and shape of all datasets, except dimension scales, and of all sparse groups."""
    found: dict[str, tuple[int, ...]] = {}

    file.visititems(lambda name, item: found.update(_shape_of(h5py, name, item)))
    return found


def _shape_of(h5py: Any, name: str, item: Any) -> dict[str, tuple[int, ...]]:
    """Shape of a dataset or sparse group, by its name; empty for other groups and for dimension scales."""
    if isinstance(item, h5py.Dataset):
        return {} if item.attrs.get("CLASS") == b"DIMENSION_SCALE" else {name: item.shape or ()}
    if not isinstance(item, h5py.Group) or (layout := sparse_layout(item)) is None:
        return {}
    lengths = np.asarray(() if layout.shape is None else layout.shape).ravel()
    return {name: tuple(int(n) for n in lengths) if lengths.dtype.kind in "iu" else (0, 0)}


def link_out(h5py: Any, file: Any, path: str, text: str) -> tuple[str, str] | None:
    """File, and path in it, to which a link leads: the one that ``text`` names, or one on the way to it.

    ``text`` is as for ``find_matrix``. If it is empty, and the file holds no matrix, the only link out of it
    is taken. None if the matrix is in the file itself. Links are followed here, not by HDF5, so that each
    file on the way is checked when it is opened.

    Raises
    ------
    InputError
        There is no matrix in the file, but several links out of it, which the message names; or links lead
        in a circle.
    """
    name = _place(h5py, file, text)
    # Few files have links out, so most are not searched for matrices here, which find_matrix does as well.
    if not name and (names := _links_out(h5py, file)) and not _matrices(h5py, file):
        if len(names) > 1:
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            raise InputError(
                f"{path} holds links to other files, {', '.join(names[:8])}{more}. Name one: "
                f"{path}::{names[0]}"
            )
        name = names[0]
    for _ in range(MOST_LINKS):
        done, rest = "", [part for part in name.split("/") if part]
        while rest:
            done = posixpath.join(done, rest.pop(0))
            link = file.get(done, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                return link.filename, posixpath.join(link.path, *rest)
            if isinstance(link, h5py.SoftLink):
                break
        else:
            return None
        target = posixpath.normpath(posixpath.join("/", posixpath.dirname(done), link.path))
        name = posixpath.join(target, *rest)
    raise InputError(f"{path}::{text} leads through more than {MOST_LINKS} links")


def _links_out(h5py: Any, file: Any) -> list[str]:
    """Paths of the links of a file that lead to other files."""
    names: list[str] = []
    file.visititems_links(
        lambda name, link: names.append(name) if isinstance(link, h5py.ExternalLink) else None
    )
    return names


def _of_matlab(path: str, name: str, node: Any) -> Found:
    """The matrix that ``node`` holds, the open dataset ``name`` of MATLAB, which stores the last axis first.

    ``InputError`` if it is empty or holds no numbers.
    """
    kind = text_of(node.attrs["MATLAB_class"])
    if kind in NO_NUMBERS or "MATLAB_empty" in node.attrs:
        what = "empty" if "MATLAB_empty" in node.attrs else f"of class {kind}"
        raise InputError(f"{path}::{name} is {what}, so it is no matrix of numbers")
    axes = tuple(f"dim{number}" for number in range(node.ndim, 0, -1))
    return Found(name, axes=axes, turned=True)
