"""Names of rows and columns that files and stores ("containers") hold with their matrices.

================ ============================= ==============================================================
container        location of names             source
================ ============================= ==============================================================
AnnData          index of ``obs``, of ``var``  https://anndata.readthedocs.io/en/stable/fileformat-prose.html
netCDF, xarray   coordinate variable of axis   CF conventions 1.11, section 5
HDF5             dimension scale of an axis    HDF5 dimension scales specification
10x Genomics     barcodes and names of genes   see ``cell_ranger``
loom             ``CellID`` and ``Gene``       https://linnarssonlab.org/loompy/format
VCF Zarr         ``sample_id``, ``variant_id`` https://github.com/sgkit-dev/vcf-zarr-spec
Zarr of rankfold attribute ``rankfold_names``  written by an import
================ ============================= ==============================================================

A container whose names cannot be read counts as one without names: its matrix is read all the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankfold.pipeline.data.alleles import NO_NAMES, variant_name
from rankfold.pipeline.data.names import (
    Axis,
    Names,
    distinct,
    names_from,
    names_of_result,
)
from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.formats.cell_ranger import labels_of_matrix
from rankfold.pipeline.formats.frame_columns import index_of, text_of
from rankfold.pipeline.formats.locate import node_kind
from rankfold.pipeline.formats.open_files import open_hdf5
from rankfold.pipeline.formats.zarr.metadata import dimension_names, names_among

UNREADABLE = (
    *(RankfoldError, OSError, RuntimeError, LookupError, ValueError, TypeError),
    *(OverflowError, AttributeError, ImportError),
)
"""Exceptions that libraries raise for names that are damaged or stored in an unknown way."""

FRAMES = {
    "X": ("obs", "var"),
    "obs": ("obs", None),
    "var": ("var", None),
    "layers": ("obs", "var"),
    "raw": ("obs", "raw/var"),
    "raw.X": ("obs", "raw.var"),
    "obsm": ("obs", None),
    "varm": ("var", None),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
}
"""Frames of AnnData whose index names the (rows, columns) of an element, by the first part of its path.

None where no frame names them.
"""

LOOM = ("matrix", "row_attrs", "col_attrs")
"""Members by which a loom file is recognized."""

LOOM_LABELS = ("row_attrs/Gene", "col_attrs/CellID")


def is_loom(root: Any) -> bool:
    """True if the open HDF5 file ``root`` is a loom file: a matrix of genes x cells, attributes of both."""
    return all(name in root for name in LOOM)


def hdf5_axis(path: str, dataset: str, number: int, name: str, length: int) -> Axis:
    """Axis ``number`` of a dataset, or of a sparse group, of an HDF5 file, with the labels that the file has.

    ``path`` is that of the file, ``dataset`` that of the dataset in it, ``length`` the length of the axis.
    The axis is called ``name`` unless a frame names it, such as ``obs``.
    """
    with contextlib.suppress(*UNREADABLE), open_hdf5(path) as file:
        for convention in (index_of_frame, labels_of_matrix, labels_of_loom):
            if (found := convention(file, dataset, number)) is not None:
                return distinct(Axis.of(found[0], length, found[1]))
        dimensions = getattr(file[dataset], "dims", None)
        for scale in dimensions[number].values() if dimensions else ():
            if "not a netCDF variable" not in text_of(scale.attrs.get("NAME")):
                return Axis.of(name, length, coordinate(scale, scale.attrs), scale.attrs)
    return Axis(name, length)


def zarr_axis(store: str, array: str, number: int, name: str | None, length: int) -> Axis:
    """Axis ``number`` of an array, or of a sparse group, of a Zarr store, with the labels that the store has.

    ``store`` is the path of its folder, ``array`` the path of the array in it. ``name`` is the name of the
    axis (None takes it from the metadata), ``length`` its length.
    """
    from rankfold.pipeline.chunks.regular_store import zarr_group

    with contextlib.suppress(*UNREADABLE):
        if node_kind(store) == "group":
            return axis_in(zarr_group(store, consolidated=False), array, number, name, length)
    return Axis(name or ("row", "column")[number], length)


def axis_in(root: Any, array: str, number: int, name: str | None, length: int) -> Axis:
    """Axis ``number`` of the array, or sparse group, ``array`` of an open Zarr group, with its labels.

    ``root`` is the group at the root of the store; ``name`` and ``length`` are as for ``zarr_axis``.
    """
    known = name or ("row", "column")[number]
    with contextlib.suppress(*UNREADABLE):
        if (found := index_of_frame(root, array, number)) is not None:
            return distinct(Axis.of(found[0], length, found[1]))
        if name is None:
            known = (dimension_names(root[array]) or ())[number] or known
        if (labels := labels_of_calls(root, known)) is not None:
            return Axis.of(known, length, labels)
        path = "/".join((*array.split("/")[:-1], known))
        scale: Any = member(root, path) if path != array else None
        if hasattr(scale, "shape"):
            return Axis.of(known, length, coordinate(scale, scale.attrs), scale.attrs)
    return Axis(known, length)


def member(root: Any, path: str) -> Any:
    """The member of a Zarr or HDF5 group at a path; None if there is none.

    Zarr's event loop keeps an error that it passes on, with all frames of its traceback and the objects in
    them, such as open files, until garbage is collected. So the traceback is removed.
    """
    try:
        return root[path]
    except KeyError as error:
        error.__traceback__ = None
        return None


def written_names(store: str, array: str, axis: int) -> Names | None:
    """Names of the rows (0) or columns (1) of an array of a Zarr store, as rankfold wrote them in attributes.

    An import writes them, and a result. None if there are none.
    """
    from rankfold.pipeline.chunks.regular_store import zarr_node

    with contextlib.suppress(*UNREADABLE):
        node = zarr_node(os.path.join(store, array) if array else store)
        facts: Any = names_among(node.attrs)
        if facts is not None:
            return names_from(facts, axis)
        if array and _of_result(node, axis):
            facts = zarr_node(store).attrs.get("rankfold")
            return None if facts is None else names_of_result(store, facts, 0)
    return None


def _of_result(node: Any, axis: int) -> bool:
    """True if ``axis`` of an array or sparse group of a result corresponds to the rows of the matrix."""
    names = dimension_names(node) if hasattr(node, "shape") else ("row", "row")
    return bool(names) and names[axis] == "row"


def coordinate(values: Any, attributes: Mapping[str, Any]) -> Any:
    """Values (n,) of a coordinate variable, with times decoded to dates by the units in its ``attributes``.

    ``values`` are returned unchanged, and not read, if they are no times. Times stay numbers in units that
    xarray does not decode.
    """
    units, calendar = (text_of(attributes.get(each)) for each in ("units", "calendar"))
    if " since " not in units or len(np.shape(values)) != 1:
        return values
    from xarray.coding.times import decode_cf_datetime

    numbers = np.asarray(values[:])
    try:
        return decode_cf_datetime(numbers, units, calendar or None)
    except (ValueError, OverflowError):  # such as months, whose lengths differ
        return numbers


def index_of_frame(root: Any, element: str, number: int) -> tuple[str, Any] | None:
    """Name (``obs`` or ``var``) and index, (n,), of the frame that labels axis ``number`` of an element.

    ``root`` is the open file or group of AnnData, ``element`` a path in it, such as ``layers/counts``. None
    for other files.
    """
    element = element.strip("/")
    if element.startswith("mod/") and element.count("/") > 1:  # of MuData: one AnnData for each modality
        _, modality, element = element.split("/", 2)
        root = root["mod"][modality]
    frames = FRAMES.get(element.partition("/")[0], (None, None))
    if number > 1 or (frame := frames[number]) is None:
        return None
    if any(member(root, part) is None for part in ("obs", "var")):
        return None
    return frame.rpartition("/")[2], index_of(root[frame])


def labels_of_loom(root: Any, element: str, number: int) -> tuple[str, Any] | None:
    """Name and labels of axis ``number``, genes (0) or cells (1), of a loom file; None for other files.

    ``root`` is the open file; the labels are the same for any ``element``.
    """
    if number > 1 or not is_loom(root):
        return None
    place = LOOM_LABELS[number]
    return ("var", "obs")[number], root[place] if hasattr(root.get(place), "shape") else None


def labels_of_calls(root: Any, axis: str) -> Any:
    """Names along ``axis``, ``samples`` or ``variants``, of a VCF Zarr store; None for other stores and axes.

    ``root`` is its open group.
    """
    if member(root, "call_genotype") is None:
        return None
    if axis == "samples":
        return member(root, "sample_id")
    return VariantLabels(root) if axis == "variants" and member(root, "variant_id") is not None else None


class VariantLabels:
    """Names of variants with the alleles that are counted, read slice by slice; see ``variant_name``."""

    def __init__(self, root: Any) -> None:
        self.root, self.shape = root, root["variant_id"].shape

    def __getitem__(self, span: slice) -> list[str]:
        names = [text_of(name) for name in self.root["variant_id"][span]]
        if "variant_allele" not in self.root and not set(names) & set(NO_NAMES):
            return names  # nothing says which allele is counted
        listed = ([text_of(each) for each in line] for line in self.root["variant_allele"][span])
        alleles = [[each for each in line if each] for line in listed]
        places: Sequence[tuple[object, ...]] = [()] * len(names)
        if set(names) & set(NO_NAMES):
            contigs = [text_of(name) for name in self.root["contig_id"][:]]
            fields = (self.root[field][span] for field in ("variant_contig", "variant_position"))
            places = [(contigs[contig], position) for contig, position in zip(*fields, strict=True)]
        return [
            variant_name(place, name, every, every[1:])
            for place, name, every in zip(places, names, alleles, strict=True)
        ]
