"""A result under the names that scanpy gives such things in an AnnData object.

====== ============================== ============================== =================================
result observations                   variables                      unstructured
====== ============================== ============================== =================================
pca    ``obsm["X_pca"]``              ``varm["PCs"]``                ``uns["pca"]``
svd    ``obsm["X_svd"]``, U s         ``varm["SVD"]``                ``uns["svd"]``
nmf    ``obsm["X_nmf"]``              ``varm["NMF"]``                ``uns["nmf"]``
knn    ``obsp["distances"]``,                                        ``uns["neighbors"]``
       ``obsp["connectivities"]``
umap   ``obsm["X_umap"]``                                            ``uns["umap"]``
tsne   ``obsm["X_tsne"]``                                            ``uns["tsne"]``
others ``obsm["X_spectral"]``,                                       ``uns["spectral"]``, and so on
       ``"X_diffmap"``, ``"X_isomap"``
====== ============================== ============================== =================================

With a key of its own a result takes that key instead, graphs ``KEY_distances`` and ``KEY_connectivities``.
What a result says of itself is in ``uns["rankfold"]``, as JSON, under the same key.

Places follow what scanpy 1.11 writes, and https://anndata.readthedocs.io for the elements.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.kernels.graph.fuzzy import membership
from rankfold.pipeline.data.names import Axis, Names
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting.outcome import (
    Outcome,
    Scaled,
    exported_facts,
    kept_places,
    names_in,
    places_among,
    require_length,
    spread,
    whole_length,
)

Array = npt.NDArray[Any]

FACTS = "uns/rankfold/"
"""Where results say what they are, by their key."""


class Keys(NamedTuple):
    """Where the parts of a factorization go."""

    key: str
    """In ``uns``."""

    observations: str
    variables: str


NAMES = {
    "pca": Keys("pca", "X_pca", "PCs"),
    "svd": Keys("svd", "X_svd", "SVD"),
    "nmf": Keys("nmf", "X_nmf", "NMF"),
}
PICTURES = {
    "umap": "X_umap",
    "tsne": "X_tsne",
    "spectral": "X_spectral",
    "diffusion_map": "X_diffmap",
    "isomap": "X_isomap",
}
"""Where coordinates in few dimensions go, for the observations alone."""

ROWS = {"pca": "scores", "svd": "U", "nmf": "W"}
COLUMNS = {"pca": "components", "svd": "Vt", "nmf": "H"}

LOOKS = 16
"""Places at which an element is looked at to know it again."""


@dataclass(frozen=True, slots=True)
class Cells:
    """What takes a result: how many observations and variables it has, and what they are called."""

    name: str
    """In messages."""

    axes: tuple[Axis, Axis]

    def places(self, result: Outcome, axis: str) -> tuple[Array | None, int]:
        """Where the rows or columns of a result go, None for all in order, and how many there are."""
        number = SIDES.index(axis)
        what, own = ("observations", "variables")[number], self.axes[number]
        places = places_among(result, axis, Names.of([own]), self.name, what)
        if names_in(result, axis) is None or Names.of([own]) is None:
            require_length(what, self.name, own.length, whole_length(result, axis))
        return places, own.length


SIDES = ("rows", "columns")


def cells_of(result: Outcome, cells: Cells, key: str | None = None) -> dict[str, Any]:
    """Elements by their path, such as ``obsm/X_pca``.

    Parameters
    ----------
    result : Result
        Of svd, pca, nmf, knn, an embedding, transform or update.
    cells : Cells
        The object that takes them. Rows and columns go where it has their names.
    key : str, optional
        In place of scanpy's names.

    Raises
    ------
    InputError
        The result is of another kind, or of a matrix with other rows or columns, by name or by number.
    """
    kind = kind_of(result)
    _require_key(key)
    if kind == "knn":
        return _graphs(result, cells, key)
    if kind in PICTURES:
        coordinates, facts = paths_of(kind, key)
        embedding = spread(result["embedding"], *cells.places(result, "rows"), np.nan)
        elements = {coordinates: embedding, facts: {"params": _params(result)}}
        return _with_facts(elements, result, key_of(kind, key))
    observations, variables, facts = paths_of(kind, key)
    elements = {}
    if COLUMNS[kind] in set(result):
        loadings = np.asarray(result[COLUMNS[kind]][...]).T
        # Zeros, as scanpy has them at genes that were not used.
        elements[variables] = spread(loadings, *cells.places(result, "columns"), 0.0)
    if ROWS[kind] in set(result):
        elements[observations] = spread(_scaled(result, kind), *cells.places(result, "rows"), np.nan)
    if COLUMNS[kind] in set(result):  # of rows that were transformed, the fit says the rest
        elements[facts] = _facts_of_factors(result, kind)
    return _with_facts(elements, result, key_of(kind, key))


def _with_facts(elements: dict[str, Any], result: Outcome, key: str) -> dict[str, Any]:
    """With what the result says of itself, and marks by which its elements are known again."""
    marks = {path: mark_of(value) for path, value in elements.items() if not path.startswith("uns/")}
    text = json.dumps({**exported_facts(result), "marks": marks}, sort_keys=True)
    return {**elements, f"{FACTS}{key}": text}


def mark_of(element: Any) -> str:
    """Digest of the type and shape of an element, and of some of its numbers, in memory or in a file."""
    mark = hashlib.blake2b(digest_size=8)
    values = element["data"] if hasattr(element, "keys") else getattr(element, "data", element)
    values = element if isinstance(element, np.ndarray | Scaled) else values
    mark.update(f"{tuple(values.shape)} {np.dtype(values.dtype).str}".encode())
    count = values.shape[0]
    for start in sorted({count * i // LOOKS for i in range(LOOKS)}):
        mark.update(np.ascontiguousarray(values[start : start + 1]).tobytes())
    return mark.hexdigest()


def paths_of(method: str, key: str | None) -> tuple[str, ...]:
    """Elements of a result that has any; nothing of other methods, which may have some of them."""
    if method == "knn":
        start = f"{key}_" if key else ""
        return (f"obsp/{start}distances", f"obsp/{start}connectivities", f"uns/{key or 'neighbors'}")
    if method in PICTURES:
        return (f"obsm/{key or PICTURES[method]}", f"uns/{key or PICTURES[method].removeprefix('X_')}")
    if method not in NAMES:
        return ()
    names = NAMES[method] if key is None else Keys(key, key, key)
    return (f"obsm/{names.observations}", f"varm/{names.variables}", f"uns/{names.key}")


def key_of(method: str, key: str | None) -> str:
    """The key in ``uns`` under which a result goes."""
    paths = paths_of(method, key)
    return paths[-1].removeprefix("uns/") if paths else key or method


LONGEST_KEY = 100


def _require_key(key: str | None) -> None:
    """Raise ``InputError`` for a name that no file can keep, or that means something else."""
    if key is None:
        return
    plain = isinstance(key, str) and key == key.strip() and 0 < len(key) <= LONGEST_KEY
    if not plain or "/" in key or key.startswith(".") or key == "rankfold":
        raise InputError(
            f"key_added={key!r} is no name for results: it is a word of up to {LONGEST_KEY} letters, without "
            "slashes, which does not begin with a dot, and is not rankfold"
        )


def kind_of(result: Outcome) -> str:
    """The kind of its factors: that of the fit, where rows were transformed."""
    kind: str = result.attrs["kind"]
    found = result.attrs["request"].get("of", kind) if kind == "transform" else kind
    able = (*NAMES, "knn", *PICTURES)
    if found not in able or "X" in set(result):
        raise InputError(f"a result of {kind} has no place in an AnnData object; {', '.join(able)} have")
    return str(found)


def _scaled(result: Outcome, kind: str) -> Any:
    """Coordinates of the rows: of svd U s, so that distances are those of the rows."""
    rows = result[ROWS[kind]]
    if kind != "svd":
        return rows
    if "s" not in set(result):
        raise InputError(
            "coordinates in components of svd are U s, but a result of transform has no s. Use those of pca, "
            "or multiply U by s of the fit"
        )
    values = np.asarray(result["s"][...]).astype(rows.dtype)
    return rows * values if isinstance(rows, np.ndarray) else Scaled(rows, values)


def _facts_of_factors(result: Outcome, kind: str) -> dict[str, Any]:
    request, arrays = result.attrs["request"], set(result)
    if kind == "pca":
        chosen = kept_places(result, "columns") is not None
        facts: dict[str, Any] = {
            "params": {"zero_center": bool(request.get("center", True)), "use_highly_variable": chosen}
        }
        for theirs, ours in (
            ("variance", "explained_variance"),
            ("variance_ratio", "explained_variance_ratio"),
        ):
            if ours in arrays:
                facts[theirs] = np.asarray(result[ours][...])
        return facts
    facts = {"params": _params(result)}
    if "s" in arrays:
        facts["singular_values"] = np.asarray(result["s"][...])
    return facts


def _params(result: Outcome) -> dict[str, Any]:
    """What was asked, as far as files of AnnData keep such values."""
    request = result.attrs["request"]
    return {name: value for name, value in request.items() if isinstance(value, bool | int | float | str)}


# Graphs -------------------------------------------------------------------------------------------


def _graphs(result: Outcome, cells: Cells, key: str | None) -> dict[str, Any]:
    """Distances to the neighbors of each row, and how strongly both belong together."""
    facts = result.attrs["request"]
    if facts.get("queries") is not None or facts.get("base") is not None:
        raise InputError(
            "neighbors of other rows are no graph of the observations: only knn of a matrix with itself is"
        )
    if facts["metric"] not in DISTANCES:
        raise InputError(
            f"{facts['metric']} is no distance, so its neighbors are no graph of scanpy's: take euclidean or "
            "cosine"
        )
    indices, distances = (np.asarray(result[name][...]) for name in ("indices", "distances"))
    near, strength = graph(indices, distances, *cells.places(result, "rows"))
    apart, connected, place = paths_of("knn", key)
    params = {"n_neighbors": int(indices.shape[1]) + 1, "method": "umap", "metric": facts["metric"]}
    graphs = {
        apart: near,
        connected: strength,
        place: {
            "connectivities_key": connected.removeprefix("obsp/"),
            "distances_key": apart.removeprefix("obsp/"),
            "params": {**params, "random_state": 0},
        },
    }
    return _with_facts(graphs, result, key_of("knn", key))


DISTANCES = ("euclidean", "cosine", "manhattan", "chebyshev", "correlation", "hamming", "jaccard")


def graph(
    indices: Array, distances: Array, places: Array | None = None, count: int | None = None
) -> tuple[Any, Any]:
    """Distances and connectivities as CSR, without any row itself.

    Connectivities are the union ``a + b - a b`` of what both rows of a pair say: McInnes, Healy, Melville,
    UMAP, arXiv:1802.03426, section 3.1.

    Parameters
    ----------
    indices, distances : (m, k)
        Neighbors of each row, in order of their distance.
    places, count : (m,), int, optional
        Where these rows lie among how many.
    """
    rows, k = indices.shape
    weights = np.empty(indices.shape, np.float32)
    mean = float(distances.mean(dtype=np.float64)) * k / (k + 1)
    membership(distances, mean, out=weights)
    count = rows if count is None else count
    pointers = np.zeros(count + 1, np.int64)
    pointers[1:][slice(None) if places is None else places] = k
    order = np.arange(rows) if places is None else np.argsort(places)
    columns = indices if places is None else places[indices]
    pointers = np.cumsum(pointers)

    def matrix(values: Array) -> Any:
        parts = (values[order].ravel(), columns[order].ravel(), pointers)
        return scipy.sparse.csr_matrix(parts, shape=(count, count))

    one_way = matrix(weights)
    other_way = one_way.T.tocsr()
    union = one_way + other_way - one_way.multiply(other_way)
    union.eliminate_zeros()
    return matrix(distances), union.tocsr()


# Objects ------------------------------------------------------------------------------------------


def annotate(cells: Any, elements: Mapping[str, Any], *, overwrite: bool) -> None:
    """Put elements into an AnnData object, or none of them.

    Raises
    ------
    OutputError
        One is there already, and is not to be replaced.
    """
    require_free(elements, lambda part, name: name in getattr(cells, part), overwrite=overwrite)
    for path, value in elements.items():
        part, _, name = path.partition("/")
        if part == "uns" and "/" in name:
            folder, _, leaf = name.partition("/")
            cells.uns[folder] = {**cells.uns.get(folder, {}), leaf: value}
        else:
            getattr(cells, part)[name] = (
                value if scipy.sparse.issparse(value) or part == "uns" else np.asarray(value[...])
            )


def require_free(elements: Mapping[str, Any], is_there: Any, *, overwrite: bool) -> None:
    """Raise ``OutputError`` for elements that are there; facts of ours are replaced with what they are of."""
    there = [path for path in elements if not path.startswith(FACTS) and is_there(*path.split("/", 1))]
    if there and not overwrite:
        raise OutputError(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already. Say overwrite=True "
            "(--overwrite), or key_added= (--key-added) for other names"
        )
