"""Names and values of the elements by which a result is stored in an AnnData object, as scanpy names them.

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
       ``"X_diffusion_map"``,
       ``"X_isomap"``
kmeans ``obs["kmeans"]``, categories                                 ``uns["kmeans"]``
====== ============================== ============================== =================================

If a key is given, it replaces these names; graphs are then ``KEY_distances`` and ``KEY_connectivities``.
Columns that the step ``highly_variable`` chose are ``var["highly_variable"]``, which ``scanpy.tl.ingest`` and
plots ask for; the measures by which it compared all columns are ``var["means"]`` and the like.
``uns["rankfold"]`` holds, under the same key, a description of the result and digests to recognize it by.

Places follow what scanpy 1.11 writes, and https://anndata.readthedocs.io for the elements.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.kernels.graph.fuzzy import membership
from rankfold.pipeline.data.names import Axis, Names, names_of_result
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting.outcome import (
    SIDES,
    Outcome,
    Scaled,
    exported_facts,
    names_in,
    places_among,
    require_length,
    spread,
    whole_length,
)
from rankfold.pipeline.formats.open_files import library
from rankfold.pipeline.prepare.parse import parse_steps
from rankfold.pipeline.presentation import presentation_of, presented, with_cells

Array = npt.NDArray[Any]

FACTS = "uns/rankfold/"
"""Path of the descriptions of results; each is stored under its key."""


LOOKS = 16
"""Largest number of rows, or entries of a vector, that go into the digest of an element (``mark_of``)."""


@dataclass(frozen=True, slots=True)
class Cells:
    """AnnData object or file that a result is added to: its name, and its observations and variables."""

    name: str
    """Name of the object or file in messages."""

    axes: tuple[Axis, Axis]

    look: Callable[[str], Any] = lambda path: None
    """Function that returns the element at a path, or the names of those in a part such as ``obsm``.

    It returns None for what is missing.
    """

    def places(self, result: Outcome, axis: str) -> tuple[Array | None, int]:
        """Indices of the ``rows`` or ``columns`` (``axis``) of a result among those of this object.

        They are None if the result has all in order. With them comes the number of observations, or
        variables, of this object.
        """
        number = SIDES.index(axis)
        what, own = ("observations", "variables")[number], self.axes[number]
        places = places_among(result, axis, Names.of([own]), self.name, what)
        if names_in(result, axis) is None or Names.of([own]) is None:
            require_length(what, self.name, own.length, whole_length(result, axis))
        return places, own.length


def cells_of(result: Outcome, cells: Cells, key: str | None = None) -> dict[str, Any]:
    """Elements of an AnnData object that hold a result, by their path, such as ``obsm/X_pca``.

    Parameters
    ----------
    result : Result
        A result of svd, pca, nmf, knn, kmeans, an embedding, transform or update.
    cells : Cells
        The object that takes them. Rows and columns go where it has their names.
    key : str, optional
        Name that replaces scanpy's names.

    Raises
    ------
    InputError
        The result is of another kind, or of a matrix with other rows or columns, by name or by number.
    """
    kind = kind_of(result)
    _require_key(key)
    method = presented(kind)
    assert method is not None and method.presentation.cells is not None  # noqa: S101  ``kind_of`` has asked
    names = method.presentation.cells
    if names.graphs:
        return _graphs(result, cells, kind, key)
    if names.labels:
        column, facts = names.paths(key)
        elements: dict[str, Any] = {column: _categories(result, cells), facts: {"params": _params(result)}}
        return _with_facts(elements, result, key_of(kind, key))
    if not names.variables:
        coordinates, facts = names.paths(key)
        embedding = spread(result[method.matrices[0]], *cells.places(result, "rows"), np.nan)
        elements = {
            coordinates: embedding,
            facts: {"params": _params(result) | _curve(result)},
        }
        return _with_facts(elements, result, key_of(kind, key))
    observations, variables, facts = names.paths(key)
    left, right = method.matrices[:2]
    elements = {}
    if right in set(result):
        loadings = np.asarray(result[right][...]).T
        # Genes that were not used are zero, as in scanpy.
        elements[variables] = spread(loadings, *cells.places(result, "columns"), 0.0)
    if left in set(result):
        coordinates_of_rows = _scaled(result, kind, left, names.scale)
        elements[observations] = spread(coordinates_of_rows, *cells.places(result, "rows"), np.nan)
    if right in set(result):  # a transform has none: its fit stores the rest
        chosen = _highly_variable(result, cells, key_of(kind, key))
        elements |= chosen.elements
        elements[facts] = _facts_of_factors(result, uses_chosen=chosen.is_there)
    return _with_facts(elements, result, key_of(kind, key))


def _categories(result: Outcome, cells: Cells) -> Any:
    """Labels of the observations as ``pandas.Categorical`` of text, as ``scanpy.tl.leiden`` writes them.

    Observations that are not in the result have no category. In memory, some 8 bytes an observation.
    """
    pandas = library("pandas", extra="cells", what="labels of AnnData")
    labels = spread(np.asarray(result["labels"][...]), *cells.places(result, "rows"), -1)
    names = [str(number) for number in range(len(result["counts"]))]
    return pandas.Categorical.from_codes(labels, names)


class Chosen(NamedTuple):
    """Mask of the variables that the step ``highly_variable`` chose, as it is to be written."""

    elements: dict[str, Any]
    """Elements to write, by path: the mask, and the measures by which variables were compared."""

    is_there: bool
    """True if the object has that mask already, or gets it now."""


def _highly_variable(result: Outcome, cells: Cells, key: str) -> Chosen:
    """Mask of the variables that the step ``highly_variable`` chose, for the result stored under ``key``.

    A mask of that name that rankfold did not write stays as it is. Results are zero for other variables, so
    they are right without the mask.
    """
    places, length = cells.places(result, "columns")
    steps = parse_steps(result.attrs["input"].get("prepare"))
    if places is None:
        return Chosen({}, is_there=False)
    mask = spread(np.ones(len(places), np.bool_), places, length, fill=False)
    claim = Claim.of(cells.look(f"{FACTS}{key}"))
    own = set() if claim is None else set(claim.marks)
    is_ours = HIGHLY_VARIABLE in own or cells.look(HIGHLY_VARIABLE) is None
    for place, step in enumerate(steps, 1):
        if step.name == "highly_variable" and is_ours:
            measures = _measures(result, cells, f"prepare_{place}_{step.name}_")
            free = {path: each for path, each in measures.items() if path in own or cells.look(path) is None}
            facts = (
                {HOW: {"flavor": step.flavor}} if HIGHLY_VARIABLE in own or cells.look(HOW) is None else {}
            )
            return Chosen({HIGHLY_VARIABLE: mask, **free, **facts}, is_there=True)
    held = _mask_at(cells.look(HIGHLY_VARIABLE))
    return Chosen({}, is_there=held is not None and np.array_equal(held, mask))


HIGHLY_VARIABLE = "var/highly_variable"

HOW = "uns/hvg"
"""Path where scanpy stores the rule by which it chose genes."""

MEASURES = ("means", "dispersions", "dispersions_norm", "variances", "variances_norm")
"""Measures by which variables are compared, as scanpy names them in ``var``."""


COMPARED, RANK = "variances_norm", "highly_variable_rank"
"""Measure by which variables of counts are ordered, and their rank by it, as scanpy names them."""


def ranks(values: Array, chosen: Array) -> Array:
    """Rank (n,) among ``values[chosen]`` of each value, from 0 for the largest; NaN for others."""
    found = np.full(len(values), np.nan)
    found[chosen[np.argsort(-values[chosen], kind="stable")]] = np.arange(len(chosen))
    return found


def _measures(result: Outcome, cells: Cells, prefix: str) -> dict[str, Array]:
    """Measures by which the step ``highly_variable`` compared variables, (n,), by path such as ``var/means``.

    They are NaN for variables that the step did not see. ``prefix`` begins the names of the step's arrays in
    the result. Empty if the variables of the object cannot be matched with those of the step.
    """
    own, length = Names.of([cells.axes[1]]), cells.axes[1].length
    compared = names_of_result("the result", result.attrs, 1)
    places = None
    if own is not None and compared is not None and not own.is_like(compared):
        places = own.find(compared)
        if (places < 0).any():
            return {}
    found = {
        name: np.asarray(result[prefix + name][...]) for name in MEASURES if prefix + name in set(result)
    }
    if places is None and any(len(values) != length for values in found.values()):
        return {}
    if COMPARED in found:
        found[RANK] = ranks(found[COMPARED], np.asarray(result[f"{prefix}columns"][...]))
    return {f"var/{name}": spread(values, places, length, np.nan) for name, values in found.items()}


def _mask_at(column: Any) -> Array | None:
    """Read a boolean column into memory; None if it has another type or is missing."""
    values = np.asarray(column[...]) if hasattr(column, "shape") else None
    return values if values is not None and values.dtype == np.bool_ else None


# What is known again --------------------------------------------------------------------------------


class Claim(NamedTuple):
    """Identity of a result, stored in an object or file together with the elements of the result."""

    digest: str
    """Digest of all attributes of the result."""

    marks: dict[str, str]
    """Digest of each element (``mark_of``), by path."""

    @classmethod
    def of(cls, held: Any) -> Claim | None:
        """Read what ``as_elements`` returned, or the JSON of earlier versions; None for anything else."""
        if isinstance(held, str):
            facts = json.loads(held)
            marks = facts.pop("marks", {})
            return cls(digest_of_facts(facts), marks)
        if not isinstance(held, Mapping) or not {"digest", "elements"} <= set(held):
            return None
        return cls(str(held["digest"]), json.loads(str(held["elements"])))

    def as_elements(self, result: Outcome) -> dict[str, str]:
        """Entries to store, by name: a description of the result, and the identity that ``of`` reads."""
        said, request = result.attrs["input"], _params(result)
        rows, columns = said["shape"]
        words = ", ".join(
            f"{name}={value}" for name, value in request.items() if value != "" and name != "kind"
        )
        return {
            "what": f"{result.attrs['kind']} of {rows} x {columns}, {said['name']}: {words}",
            **({"prepare": str(said["prepare"])} if "prepare" in said else {}),
            "version": str(result.attrs.get("version", "")),
            "digest": self.digest,
            "elements": json.dumps(self.marks),
        }


def digest_of_facts(facts: Mapping[str, Any]) -> str:
    """Digest of the attributes of a result; results are equal if their digests are."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _with_facts(elements: dict[str, Any], result: Outcome, key: str) -> dict[str, Any]:
    """The elements, by path, with a description of the result, and digests by which they are recognized.

    It is added under ``uns/rankfold/KEY``.
    """
    marks = {path: mark_of(value) for path, value in elements.items() if not path.startswith("uns/")}
    claim = Claim(digest_of_facts(exported_facts(result)), marks)
    return {**elements, f"{FACTS}{key}": claim.as_elements(result)}


def mark_of(element: Any) -> str:
    """Digest of the type and shape of an element in memory or a file, and of up to ``LOOKS`` of its rows."""
    mark = hashlib.blake2b(digest_size=8)
    if hasattr(element, "keys"):
        values = element["codes" if "codes" in element else "data"]
    elif isinstance(element, np.ndarray | Scaled):
        values = element
    else:
        values = getattr(element, "codes", getattr(element, "data", element))
    mark.update(f"{tuple(values.shape)} {np.dtype(values.dtype).str}".encode())
    count = values.shape[0]
    for start in sorted({count * i // LOOKS for i in range(LOOKS)}):
        mark.update(np.ascontiguousarray(values[start : start + 1]).tobytes())
    return mark.hexdigest()


def paths_of(method: str, key: str | None) -> tuple[str, ...]:
    """Paths of all elements that a result of ``method`` may be stored in; empty if there is no place for it.

    ``key`` replaces scanpy's names in them, if given.
    """
    names = presentation_of(method).cells
    return () if names is None else names.paths(key)


def key_of(method: str, key: str | None) -> str:
    """Key in ``uns`` under which a result of ``method`` is stored: ``key`` if given, else scanpy's name."""
    paths = paths_of(method, key)
    return paths[-1].removeprefix("uns/") if paths else key or method


LONGEST_KEY = 100


def _require_key(key: str | None) -> None:
    """Raise ``InputError`` for a key that files cannot hold, or that is reserved."""
    if key is None:
        return
    plain = isinstance(key, str) and key == key.strip() and 0 < len(key) <= LONGEST_KEY
    if not plain or "/" in key or key.startswith(".") or key == "rankfold":
        raise InputError(
            f"key_added={key!r} is no name for results: it is a word of up to {LONGEST_KEY} letters, without "
            "slashes, which does not begin with a dot, and is not rankfold"
        )


def kind_of(result: Outcome) -> str:
    """Kind of a result that AnnData has a place for; for ``transform``, the kind of the fit."""
    kind: str = result.attrs["kind"]
    found = result.attrs["request"].get("of", kind) if presentation_of(kind).like_fit else kind
    if presentation_of(found).cells is None or "X" in set(result):
        able = ", ".join(with_cells())
        raise InputError(f"a result of {kind} has no place in an AnnData object; {able} have")
    return str(found)


def _scaled(result: Outcome, kind: str, left: str, scale: str) -> Any:
    """Coordinates of the rows, (m, k); for svd these are U s, so that distances are those of the rows.

    ``left`` and ``scale`` name arrays of the result: the factor for rows, and what it is multiplied by, if
    anything.
    """
    rows = result[left]
    if not scale:
        return rows
    if scale not in set(result):
        raise InputError(
            f"coordinates in components of {kind} are {left} {scale}, but a result of transform has no "
            f"{scale}. Use those of pca, or multiply {left} by {scale} of the fit"
        )
    values = np.asarray(result[scale][...]).astype(rows.dtype)
    return rows * values if isinstance(rows, np.ndarray) else Scaled(rows, values)


def _facts_of_factors(result: Outcome, *, uses_chosen: bool) -> dict[str, Any]:
    request, arrays = result.attrs["request"], set(result)
    if "explained_variance" in arrays:  # as ``scanpy.tl.pca`` writes them
        params: dict[str, Any] = {"zero_center": bool(request.get("center", True))}
        params["use_highly_variable"] = uses_chosen
        params |= {"mask_var": "highly_variable"} if uses_chosen else {}
        facts: dict[str, Any] = {"params": params}
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
    """Parameters of the request of a result, of those types that AnnData files can hold."""
    request = result.attrs["request"]
    return {name: value for name, value in request.items() if isinstance(value, bool | int | float | str)}


def _curve(result: Outcome) -> dict[str, float]:
    """The parameters a and b of UMAP's curve ``1 / (1 + a d^(2 b))``, by name; empty for other results.

    ``scanpy.tl.ingest`` uses them.
    """
    return dict(zip("ab", map(float, result.attrs.get("curve", ())), strict=False))


# Graphs -------------------------------------------------------------------------------------------


def _graphs(result: Outcome, cells: Cells, kind: str, key: str | None) -> dict[str, Any]:
    """Elements, by path, with the distances to the neighbors of each row, and connectivities, edge weights.

    ``kind`` is that of the result, and ``key`` replaces scanpy's names, if given.
    """
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
    apart, connected, place = paths_of(kind, key)
    params = {"n_neighbors": int(indices.shape[1]) + 1, "method": "umap", "metric": facts["metric"]}
    params |= _representation(result, cells, indices, distances)
    graphs = {
        apart: near,
        connected: strength,
        place: {
            "connectivities_key": connected.removeprefix("obsp/"),
            "distances_key": apart.removeprefix("obsp/"),
            "params": {**params, "random_state": 0},
        },
    }
    return _with_facts(graphs, result, key_of(kind, key))


MEASURED = ("euclidean", "cosine", "manhattan")
"""Metrics for which ``_representation`` can compute distances."""


def _representation(result: Outcome, cells: Cells, indices: Array, distances: Array) -> dict[str, Any]:
    """Find the array in ``obsm`` in which neighbors were searched, by computing some distances again.

    ``indices`` and ``distances``, (m, k), are those of the neighbors. Returns parameters of scanpy:
    ``use_rep``, or for ``X_pca`` the number of components; empty if no array fits. Only that number, without
    a name, makes ``scanpy.tl.ingest`` project new cells into ``X_pca``.
    """
    metric, width = result.attrs["request"]["metric"], result.attrs["input"]["shape"][1]
    places, count = cells.places(result, "rows")
    looks = sorted({len(indices) * i // LOOKS for i in range(LOOKS)})
    for name in cells.look("obsm") or () if metric in MEASURED else ():
        points = cells.look(f"obsm/{name}")
        is_array = hasattr(points, "dtype") and not scipy.sparse.issparse(points)
        if not is_array or tuple(points.shape) != (count, width):
            continue
        pairs = np.array([(i, indices[i, -1]) for i in looks])
        pairs = pairs if places is None else places[pairs]
        a, b = (np.stack([np.asarray(points[int(i)], np.float64) for i in side]) for side in pairs.T)
        if np.allclose(_measure(a, b, metric), distances[looks, -1], rtol=1e-3, atol=1e-5):
            return {"n_pcs": width} if name == "X_pca" else {"use_rep": name}
    return {}


def _measure(a: Array, b: Array, metric: str) -> Array:
    """Distances (m,) between corresponding rows of ``a`` and ``b``, both (m, n)."""
    if metric == "cosine":
        with np.errstate(invalid="ignore"):
            lengths = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
            return np.asarray(1 - (a * b).sum(axis=1) / lengths)
    return np.asarray(
        np.abs(a - b).sum(axis=1) if metric == "manhattan" else np.sqrt(((a - b) ** 2).sum(axis=1))
    )


DISTANCES = ("euclidean", "cosine", "manhattan", "chebyshev", "correlation", "hamming", "jaccard")


def graph(
    indices: Array, distances: Array, places: Array | None = None, count: int | None = None
) -> tuple[Any, Any]:
    """Distances and connectivities as CSR matrices of (count, count), without entries on the diagonal.

    Connectivities are the union ``a + b - a b`` of the memberships that both rows of a pair give each other:
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, section 3.1.

    Parameters
    ----------
    indices, distances : (m, k)
        Neighbors of each row, as indices from 0 to m - 1, in order of their distance, and these distances.
    places, count : (m,), int, optional
        Indices of the m rows among ``count`` observations; by default these are all, in order.
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


def look_into(cells: Any) -> Callable[[str], Any]:
    """Make the ``Cells.look`` of an AnnData object."""

    def look(path: str) -> Any:
        part, _, name = path.partition("/")
        holder: Any = getattr(cells, part)
        for word in name.split("/") if name else ():
            if word not in holder:
                return None
            holder = holder[word]
        return np.asarray(holder) if part == "var" else holder

    return look


def annotate(cells: Any, elements: Mapping[str, Any], *, overwrite: bool) -> None:
    """Put elements, by their path, into an AnnData object: all, or none if an error is raised.

    Raises
    ------
    OutputError
        An element exists already, and ``overwrite`` is False.
    """
    require_free(elements, lambda part, name: name in getattr(cells, part), overwrite=overwrite)
    for path, value in elements.items():
        part, _, name = path.partition("/")
        if part == "uns" and "/" in name:
            folder, _, leaf = name.partition("/")
            cells.uns[folder] = {**cells.uns.get(folder, {}), leaf: value}
        else:
            is_whole = part in ("uns", "obs") or scipy.sparse.issparse(value)
            getattr(cells, part)[name] = value if is_whole else np.asarray(value[...])


def require_free(elements: Mapping[str, Any], is_there: Any, *, overwrite: bool) -> None:
    """Raise ``OutputError`` for elements that exist, unless ``overwrite``.

    Descriptions that rankfold wrote may always be replaced. ``is_there`` takes part and name of an element,
    as ``obsm`` and ``X_pca``, and returns True if it exists.
    """
    there = [path for path in elements if not path.startswith(FACTS) and is_there(*path.split("/", 1))]
    if there and not overwrite:
        raise OutputError(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already. Say overwrite=True "
            "(--overwrite), or key_added= (--key-added) for other names"
        )
