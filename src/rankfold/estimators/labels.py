"""Samples that carry names: AnnData objects and xarray's DataArrays, handled as scikit-learn handles data
frames.

scikit-learn itself reads names from pandas and polars frames, except numbers, whose order is compared here.
For objects of other libraries, an estimator gets the matrix, and the names are handled here as scikit-learn
handles those of frames: they become ``feature_names_in_``, are compared with those of the fit, and name the
rows of the output of ``set_output(transform="pandas")``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.utils.validation import _check_feature_names

import rankfold
from rankfold.pipeline.data.named_objects import names_along
from rankfold.pipeline.data.names import find_places
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.arrays import is_cells, matrix_of_cells
from rankfold.pipeline.formats.open_files import library

E = TypeVar("E", bound=type[Any])

NAMED_METHODS = (
    "fit",
    "fit_transform",
    "fit_predict",
    "partial_fit",
    "predict",
    "transform",
    "score",
    "score_samples",
    "kneighbors",
    "kneighbors_graph",
    "radius_neighbors",
    "radius_neighbors_graph",
)
"""Methods whose first argument is samples."""

UNNAMED = "X does not have valid feature names"
"""Prefix of scikit-learn's warning about a matrix without the names of the fit."""


class Labeled(NamedTuple):
    """A matrix, and the names of its columns and rows where it has some."""

    matrix: Any
    columns: npt.NDArray[Any] | None
    rows: Any


def labels_of(x: Any) -> Labeled | None:
    """Matrix and names of an object with names; None for everything else, including frames."""
    if is_cells(x):
        matrix = matrix_of_cells(x)
        if isinstance(matrix, np.ndarray):
            matrix = np.asarray(matrix)  # without AnnData's subclass for views
        elif not scipy.sparse.issparse(matrix):
            matrix = rankfold.open(x)
        return Labeled(matrix, np.asarray(x.var_names, object), x.obs_names)
    if type(x).__module__.partition(".")[0] != "xarray" or getattr(x, "ndim", 0) != 2:
        return None
    rows, columns = (x.coords[axis].values if axis in x.coords else None for axis in x.dims)
    named = columns is not None and all(isinstance(name, str) for name in columns)
    in_memory = x.chunks is None and x.variable._in_memory
    return Labeled(x.values if in_memory else x, np.asarray(columns, object) if named else None, rows)


def labeled(estimator: E) -> E:
    """Class decorator: methods of an estimator also accept samples with names."""
    for name in NAMED_METHODS:
        if hasattr(estimator, name):
            setattr(estimator, name, _taking_labels(getattr(estimator, name), name))
    return estimator


def _taking_labels(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        samples = arguments[0] if arguments else keywords.get("X")
        labels = labels_of(samples)
        fits = name.startswith("fit") or (name == "partial_fit" and not hasattr(self, "n_features_in_"))
        if labels is None:
            _compare_numbers(self, samples, fits=fits)
            return method(self, *arguments, **keywords)
        if arguments:
            arguments = (labels.matrix, *arguments[1:])
        else:
            keywords["X"] = labels.matrix
        if not fits and labels.columns is not None:
            _check_feature_names(self, _frame_of(labels.columns), reset=False)
        with warnings.catch_warnings():
            if labels.columns is not None:
                warnings.filterwarnings("ignore", UNNAMED, UserWarning)
            made = method(self, *arguments, **keywords)
        if fits and labels.columns is not None:
            _check_feature_names(self, _frame_of(labels.columns), reset=True)
        return _with_rows(made, labels)

    return call


def _compare_numbers(estimator: Any, samples: Any, *, fits: bool) -> None:
    """In a fit (``fits``), keep numeric names of a frame's columns; later, raise if their order differs."""
    libraries = {each.__module__.partition(".")[0] for each in type(samples).__mro__}
    is_frame = "pandas" in libraries and hasattr(samples, "columns")
    is_numbered = is_frame and not any(isinstance(name, str) for name in samples.columns)
    names = names_along(samples, 1) if is_numbered else None
    if fits:
        vars(estimator).pop("_column_numbers", None)
        if names is not None:
            estimator._column_numbers = names
    elif is_numbered:
        wanted = getattr(estimator, "_column_numbers", None)
        if find_places(names, wanted, "column", "X", "the fit") is not None:
            raise InputError("columns of X are in another order than those of the fit. Give X in that order")


def _frame_of(columns: npt.NDArray[Any]) -> Any:
    """A frame without rows, from which scikit-learn's own comparison reads names."""
    return library("pandas", extra="frames", what="comparing names of features").DataFrame(columns=columns)


def _with_rows(made: Any, labels: Labeled) -> Any:
    """Return the output ``made`` of a method; if it is a pandas frame, its rows get the samples' names."""
    if type(made).__module__.partition(".")[0] == "pandas" and labels.rows is not None:
        made.index = labels.rows
    return made
