"""Laws of the arrays and facts of results, by name: axes, types and ranges.

A method names its arrays in its declaration; what they may hold is declared here, once for all methods. A
result that is opened is compared with these laws before anything is computed from it: see
``rankfold.pipeline.law``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rankfold.methods.argument import Parameter
from rankfold.methods.knn.arguments import HAVERSINE, NAMES, SET_NAMES
from rankfold.methods.registry import METHODS
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.law import (
    BOUND,
    COUNT,
    COUNTS,
    FACTS,
    FLAG,
    LARGEST,
    MAYBE_REAL,
    MAYBE_REALS,
    NUMBER,
    REAL,
    REAL_FACT,
    REALS,
    STORED,
    TEXT,
    WHOLE,
    Condition,
    Fact,
    Law,
    ResultLaw,
    first_outside,
)
from rankfold.pipeline.storage.chunk_writer import create_array
from rankfold.pipeline.storage.result import write_small

LAWS = {
    # Numbers of orthonormal vectors are at most 1, up to rounding.
    "U": Law(("row", "component"), NUMBER, -2, 2),
    "s": Law(("component",), REAL, 0, falling=True),
    "Vt": Law(("component", "column"), NUMBER, -2, 2),
    "Q": Law(("row", "component"), NUMBER, -2, 2),
    "R": Law(("component", "column"), NUMBER),
    "W": Law(("row", "component"), REAL, 0),
    "H": Law(("component", "column"), REAL, 0),
    "W_gram": Law(("component", "other_component"), REAL),
    "W_product": Law(("component", "column"), REAL),
    "scores": Law(("row", "component"), NUMBER),
    "components": Law(("component", "column"), NUMBER, -2, 2),
    "mean": Law(("column",), NUMBER),
    "scale": Law(("column",), REAL, 0),
    "explained_variance": Law(("component",), REAL, 0),
    "explained_variance_ratio": Law(("component",), REAL, 0),
    "singular_values": Law(("component",), REAL, 0, falling=True),
    "eigenvalues": Law(("component",), REAL),
    "residuals": Law(("component",), REAL, 0),
    "left_residuals": Law(("component",), REAL, 0),
    "right_residuals": Law(("component",), REAL, 0),
    "error_estimates": Law(("component",), REAL, 0),
    "convergence": Law(("pass",), REAL),
    "labels": Law(("row",), WHOLE, -1, below=("cluster", "row")),
    "centers": Law(("cluster", "column"), STORED),
    "means": Law(("cluster", "column"), REAL),
    "counts": Law(("cluster",), WHOLE, 0),
    "cluster_weights": Law(("cluster",), REAL, 0),
    "inertia": Law(("pass",), REAL, 0),
    "history": Law(("measure", "quantity"), REAL),
    "indices": Law(("row", "neighbor"), WHOLE, 0, below=("other",)),
    "distances": Law(("row", "neighbor"), REAL),
    "degrees": Law(("row",), WHOLE, 0),
    "density": Law(("row",), REAL, 0),
    "embedding": Law(("row", "component"), REAL),
    "radius_data": Law(("row",), REAL, may_be_nan=True),
    "radius_embedding": Law(("row",), REAL, may_be_nan=True),
    "sums": Law(("row",), REAL),
    "forces": Law(("row", "column"), REAL),
    "log_density": Law(("row",), REAL, -math.inf),
    "geodesics": Law(("row", "landmark"), REAL, 0),
    "landmarks": Law(("landmark",), WHOLE, -1, below=("row",)),
    "landmark_eigenvalues": Law(("landmark",), REAL),
    "projection": Law(("landmark", "component"), REAL),
    "mean_squares": Law(("landmark",), REAL, 0),
    "rows": Law(("place", "column"), STORED),
    "ids": Law(("place", "one"), WHOLE, 0, below=("place",)),
    "edges": Law(("edge",), WHOLE, 0, reaches=("place",), rising=True, spans=True),
    "radii": Law(("cluster",), REAL, 0),
    "offset": Law(("component",), REAL),
    "shift": Law(("column",), REAL),
    "features": Law(("row", "component"), REAL),
    "points": Law(("landmark", "column"), REAL),
    "normalization": Law(("landmark", "component"), REAL),
}
"""Law of each array by its name: axes, types and range. ``Method.laws`` overrides it for one method."""

METRIC = Fact((str,), choices=(*NAMES, *SET_NAMES, HAVERSINE, "precomputed"))
"""Constraint on names of distances in facts of results; aliases are stored as the name that they stand
for."""

ATTRIBUTES: dict[str, Fact] = {
    **dict.fromkeys(
        (
            *("rank", "block_width", "products", "added_rows", "sample_rows", "components", "directions"),
            *("landmarks", "negative_eigenvalues", "connected_components", "largest_component", "isolated"),
            *("error_sample", "order", "pairs", "nodes", "weights", "edges", "most_neighbors", "steps"),
            *("empty_clusters", "affinities", "quality_rows", "quality_k", "epochs", "edges_that_pull"),
            *("rows_at_random", "compressed_iterations", "partitions", "largest_partition", "recall_rows"),
            *("rounds", "probes", "rows_of_the_fit"),
        ),
        COUNT,
    ),
    **dict.fromkeys(
        (
            *("largest_error_estimate", "squared_norm", "captured", "approximation_error", "relative_error"),
            *("relative_error_floor", "residual_variance", "standard_error", "covering_radius"),
            *("reconstruction_error", "negative_share", "condition", "trace", "trace_error", "pair_error"),
            *("explained_share", "least_eigenvalue", "largest_residual", "left_orthogonality"),
            *("right_orthogonality", "mean_distance", "local_connectivity", "opening", "largest_weight"),
            *("final_inertia", "kl_divergence", "gradient_norm", "repulsion_error", "edge_loss"),
            *("pair_loss", "trustworthiness", "continuity"),
            *("trustworthiness_error", "continuity_error", "preservation", "preservation_error", "cost"),
            *("product_norm", "recall", "value"),
        ),
        REAL_FACT,
    ),
    **dict.fromkeys(
        ("orthogonality", "stationarity", "change", "density_correlation", "density_correlation_error"),
        MAYBE_REAL,
    ),
    **dict.fromkeys(("error", "error_bound"), BOUND),
    **dict.fromkeys(("converged", "all_eigenvalues"), FLAG),
    "metric": METRIC,
    "stopped": TEXT,
    **dict.fromkeys(("matrix", "carried"), FACTS),
    **dict.fromkeys(
        ("errors", "curve", "recall_interval", "trace_error_interval", "pair_error_interval"),
        REALS,
    ),
    "convergence": MAYBE_REALS,
    "unscaled": COUNTS,
}
"""Type and range of each attribute of a result by its name, for all methods of this package."""

REQUEST: dict[str, Fact] = {
    **dict.fromkeys(("k", "rank", "passes", "n_landmarks", "indices_k"), COUNT),
    **dict.fromkeys(("center", "scale", "whiten", "adaptive", "forces", "radii"), FLAG),
    **dict.fromkeys(("of", "rule", "result"), TEXT),
    "metric": METRIC,
    "queries": Fact((str, list), choices=("input",), may_lack=True, not_empty=True),
    "perplexities": Fact((float,), least=1, many=True, not_empty=True),
    "n_components": Fact((int,), least=0, counts="component"),
    "constraint_w": Fact((str, float)),
    **dict.fromkeys(("local_connectivity", "radius", "tol", "alpha", "alpha_w", "alpha_h"), REAL_FACT),
    **dict.fromkeys(("gamma", "degree", "coef0"), REAL_FACT),
}
"""Constraints on entries of ``attrs["request"]`` that are no argument, or of another type than their
argument."""


def law_of_results(kind: str) -> ResultLaw | None:
    """Build the constraints on results of a method from its declaration; None if ``kind`` names no method."""
    if kind not in METHODS:
        return None
    method, conditions, is_ours = METHODS[kind], dict[str, list[Condition]](), kind in METHODS.ours
    for said in method.arrays:
        name, _, condition = said.rstrip("?").partition(" if ")
        conditions.setdefault(name, [])
        if not said.endswith("?"):
            conditions[name].append(_condition(condition))
    return ResultLaw(
        {name: method.laws.get(name) or LAWS.get(name, Law()) for name in conditions},
        {name: _any_of(several) for name, several in conditions.items() if several},
        ATTRIBUTES if is_ours else {},
        {**_asked(method.parameters()), **REQUEST} if is_ours else {},
    )


def _condition(said: str) -> Condition:
    """Test of a result's facts, from text ``name=value`` or ``name``: its request has that, or any value.

    Empty text gives a test that is always true, and ``name`` alone is false for 0, False and None.
    """
    name, _, value = said.partition("=")
    if not name:
        return lambda facts: True
    if value:
        return lambda facts: facts["request"].get(name) == value
    return lambda facts: bool(facts["request"].get(name))


def _any_of(several: list[Condition]) -> Condition:
    return lambda facts: any(condition(facts) for condition in several)


def _asked(parameters: tuple[Parameter, ...]) -> dict[str, Fact]:
    """Constraints on the request's entries by name, for arguments that are numbers or words of a choice.

    Other arguments are stored in other forms.
    """
    found = {}
    for each in parameters:
        types, said = each.types, each.argument
        words = types == (str,) and said.choices and not said.holds
        if words or set(types) <= {bool, int, float}:
            bounds = (None, None) if each.default is None else (said.least, said.below)  # resolved
            found[each.name] = Fact(types, *bounds, said.choices, may_lack=each.default is None)
    return found


def create_output(
    group: Path, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, chunks: tuple[int, ...]
) -> Path:
    """Create an array in the result ``group``, to be written chunk by chunk; return its path.

    Chunks of an earlier attempt are kept.
    """
    return create_array(group, name, shape, dtype, chunks, LAWS[name].axes or ())


def write_outputs(group: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays that are in memory, given by name, into the result ``group``, each as one chunk.

    Raises
    ------
    DataError
        A number is not finite, or below the least that its law allows.
    """
    for name, values in arrays.items():
        if (place := first_outside(values, LAWS[name].least, LARGEST)) is not None:
            raise DataError(
                f"{name} has a number that is {values.reshape(-1)[place]}: the data are beyond what floating "
                "point holds. Give them in other units"
            )
        write_small(group, {name: values}, *(LAWS[name].axes or ()))
