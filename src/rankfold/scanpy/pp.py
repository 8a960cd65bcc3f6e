"""Preprocessing by scanpy's names: see https://scanpy.readthedocs.io for what the arguments mean."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

import rankfold
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ArgumentError, InputError
from rankfold.pipeline.prepare.moments import column_moments

__all__ = ["neighbors", "pca"]

Array = npt.NDArray[Any]

TOL = 1e-8
"""Estimated relative error of singular values at which ``pca`` stops. Vectors whose values are close to each
other then have errors of some 1e-6.
"""

ROUNDING = "rounding errors of float32 products"
"""Text in warnings about errors that more passes would not reduce below ``TOL``."""

LEAST_SAID = 1e-4
"""Smallest estimated error due to rounding that a warning reports: no user can act on a smaller one."""

FULL_COMPONENTS = 50
SOLVERS = {None: "auto", "auto": "auto", "arpack": "auto", "full": "auto", "covariance_eigh": "gram"}
SMALL = 50
"""Largest number of genes for which neighbors are computed from ``X`` itself by default, as scanpy does."""


class _Default:
    def __repr__(self) -> str:
        return "'highly_variable' if there is such a column"


DEFAULT: Any = _Default()


def pca(
    data: Any,
    n_comps: int | None = None,
    *,
    layer: str | None = None,
    zero_center: bool = True,
    svd_solver: str | None = None,
    chunked: bool = False,
    chunk_size: int | None = None,
    random_state: int | None = 0,
    return_info: bool = False,
    mask_var: Array | str | None = DEFAULT,
    use_highly_variable: bool | None = None,
    dtype: npt.DTypeLike = "float32",
    key_added: str | None = None,
    copy: bool = False,
    memory: str | int | None = None,
) -> Any:
    """Principal components, as ``scanpy.pp.pca``.

    Parameters
    ----------
    data : AnnData or array
        Backed objects are read from their file.
    n_comps, layer, zero_center, return_info, mask_var, use_highly_variable, dtype, key_added, copy
        As in scanpy 1.11.
    svd_solver : str, optional
        None, "auto", "arpack", "full", "covariance_eigh" or "randomized": all are computed to ``TOL``.
    chunked, chunk_size
        Have no effect: memory is planned in any case.
    random_state : int, optional
        Seed.
    memory : str or int, optional
        Most memory, such as ``"2GiB"``.

    Returns
    -------
    AnnData, array, tuple or None
        As in scanpy: None for AnnData without ``copy=True``; for an array its coordinates, with
        ``return_info=True`` also components, shares of the variance and variances.
    """
    if svd_solver not in (*SOLVERS, "randomized"):
        raise InputError(
            f"svd_solver={svd_solver!r} is not known; say one of {', '.join(map(repr, SOLVERS))}"
        )
    arguments = {"layer": layer, "zero_center": zero_center, "svd_solver": svd_solver, "memory": memory}
    if not hasattr(data, "obsm"):
        if layer is not None or not (mask_var is DEFAULT or mask_var is None):
            raise InputError("layer= and mask_var= are for AnnData objects: cut the array instead")
        source, result = _decompose(data, None, n_comps, random_state, arguments)
        scores = np.asarray(result.scores[...], np.dtype(dtype))
        if not return_info:
            return scores
        variance, ratio = _variances(source, result, zero_center=zero_center)
        return scores, result.components, ratio, variance
    adata = data.copy() if copy else data
    name, mask = _mask(adata, mask_var, use_highly_variable)
    matrix = adata.X if layer is None else adata.layers[layer]
    matrix = adata if layer is None and adata.isbacked else matrix
    source, result = _decompose(matrix, mask, n_comps, random_state, arguments)
    result.to_anndata(adata, key_added=key_added, overwrite=True)
    key = key_added or "X_pca"
    adata.obsm[key] = adata.obsm[key].astype(dtype, copy=False)
    params: dict[str, Any] = {"zero_center": zero_center, "use_highly_variable": name == "highly_variable"}
    params["mask_var"] = name if name is not None or mask is None else mask
    facts = adata.uns[key_added or "pca"]
    facts["params"] = params | ({} if layer is None else {"layer": layer})
    facts["variance"], facts["variance_ratio"] = _variances(source, result, zero_center=zero_center)
    return adata if copy else None


def _decompose(
    matrix: Any, mask: Array | None, n_comps: int | None, seed: int | None, arguments: Mapping[str, Any]
) -> tuple[Source, rankfold.Result]:
    source = rankfold.open(matrix, select_columns=mask)
    least = min(source.shape)
    if n_comps is None:
        n_comps = FULL_COMPONENTS if least > FULL_COMPONENTS else least - 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".*{ROUNDING}", rankfold.RankfoldWarning)
        result = rankfold.pca(
            source,
            n_comps,
            tol=TOL,
            center=arguments["zero_center"],
            solver=SOLVERS.get(arguments["svd_solver"], "auto"),
            seed=seed or 0,
            memory=arguments["memory"],
            progress=False,
        )
    if result.attrs["largest_error_estimate"] > LEAST_SAID:
        for message in result.attrs["warnings"]:
            if ROUNDING in message:
                warnings.warn(message, rankfold.RankfoldWarning, stacklevel=3)
    return source, result


def _variances(source: Source, result: rankfold.Result, *, zero_center: bool) -> tuple[Array, Array]:
    """Variance (k,) of each component, and its share (k,) of the sum of the variances of all genes.

    Without centering these are variances of the coordinates about their mean, as in scikit-learn's
    TruncatedSVD, whose numbers scanpy writes; the variance of all genes takes a read.
    """
    if zero_center:
        return np.asarray(result.explained_variance), np.asarray(result.explained_variance_ratio)
    variance = np.var(np.asarray(result.scores[...], np.float64), axis=0)
    return variance, variance / column_moments(source).variance(0).sum()


def _mask(adata: Any, mask_var: Any, use_highly_variable: bool | None) -> tuple[str | None, Array | None]:
    """Name and values of the mask of genes, chosen as scanpy does; None for what is missing."""
    if use_highly_variable is not None:
        warnings.warn(
            "use_highly_variable is deprecated: say mask_var='highly_variable' or mask_var=None",
            FutureWarning,
            stacklevel=3,
        )
        if mask_var is not DEFAULT:
            raise InputError("give mask_var= or use_highly_variable=, not both")
        mask_var = "highly_variable" if use_highly_variable else None
    elif mask_var is DEFAULT:
        mask_var = "highly_variable" if "highly_variable" in adata.var.columns else None
    if mask_var is None:
        return None, None
    if isinstance(mask_var, str):
        if mask_var not in adata.var.columns:
            raise InputError(f"adata.var has no column {mask_var!r}; run the step that makes it first")
        return mask_var, adata.var[mask_var].to_numpy(dtype=bool)
    return None, np.asarray(mask_var, dtype=bool)


def neighbors(
    adata: Any,
    n_neighbors: int = 15,
    n_pcs: int | None = None,
    *,
    use_rep: str | None = None,
    knn: bool = True,
    method: str = "umap",
    transformer: object = None,
    metric: str = "euclidean",
    metric_kwds: Mapping[str, Any] = MappingProxyType({}),
    random_state: int | None = 0,
    key_added: str | None = None,
    copy: bool = False,
    memory: str | int | None = None,
) -> Any:
    """Neighbors of every cell, exact, and their graph, as ``scanpy.pp.neighbors``.

    Parameters
    ----------
    adata : AnnData
    n_neighbors, n_pcs, use_rep, metric, key_added, copy
        As in scanpy 1.11.
    knn, method, transformer, metric_kwds
        Only their defaults are supported.
    random_state
        No effect: nothing is random.
    memory : str or int, optional
        Most memory.
    """
    defaults = {"knn": (knn, True), "method": (method, "umap"), "transformer": (transformer, None)}
    for name, (value, default) in defaults.items():
        if value != default:
            raise ArgumentError(f"{name}={value!r} is not there: neighbors are exact, with UMAP's graph")
    if metric_kwds:
        raise ArgumentError("metric_kwds= is not there: give a metric that takes no parameters")
    cells = adata.copy() if copy else adata
    points = _representation(cells, use_rep, n_pcs)
    if n_neighbors > cells.n_obs:  # as scanpy does
        n_neighbors = 1 + int(0.5 * cells.n_obs)
        warnings.warn(f"n_obs too small: adjusting to n_neighbors = {n_neighbors}", stacklevel=2)
    if n_neighbors < 2:
        raise InputError(
            f"n_neighbors={n_neighbors} leaves no neighbor, since each cell counts as one of its own: say at "
            "least 2"
        )
    result = rankfold.knn(points, n_neighbors - 1, metric=metric, memory=memory, progress=False)
    result.to_anndata(cells, key_added=key_added, overwrite=True)
    params = cells.uns[key_added or "neighbors"]["params"]
    params["random_state"] = random_state
    for name, value in (("use_rep", use_rep), ("n_pcs", n_pcs)):  # as scanpy, only what was asked for
        params.pop(name, None)
        params |= {} if value is None else {name: value}
    return cells if copy else None


def _representation(cells: Any, use_rep: str | None, n_pcs: int | None) -> Any:
    """Matrix with a row for each cell in which neighbors are measured; components are computed if missing.

    It is ``X`` if there are few genes or ``use_rep`` asks for it, else ``obsm[use_rep]``, by default
    ``obsm["X_pca"]``, with its first ``n_pcs`` columns.
    """
    if use_rep == "X" or (use_rep is None and n_pcs == 0):
        return cells if cells.isbacked else cells.X
    if use_rep is None and cells.n_vars <= SMALL and n_pcs is None:
        return cells.X
    if use_rep is None and "X_pca" not in cells.obsm:
        warnings.warn(
            f"there are no components yet, and {cells.n_vars} genes are many: they are computed with "
            "defaults. Say use_rep='X' to measure in all genes",
            stacklevel=3,
        )
        pca(cells, n_pcs)
    name = use_rep or "X_pca"
    if name not in cells.obsm:
        raise InputError(f"adata.obsm has no {name!r}; it has {', '.join(cells.obsm) or 'nothing'}")
    points = cells.obsm[name]
    if n_pcs is not None and n_pcs > points.shape[1]:
        raise InputError(f"{name} has {points.shape[1]} dimensions, and n_pcs={n_pcs} was asked for")
    points = points.to_numpy() if hasattr(points, "to_numpy") else points
    return points[:, :n_pcs] if scipy.sparse.issparse(points) else np.ascontiguousarray(points[:, :n_pcs])


def __dir__() -> list[str]:
    return __all__
