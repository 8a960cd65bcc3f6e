"""Arguments of umap: types, defaults and limits, and the curve that forces follow from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from rankfold.methods.argument import Argument, request_values
from rankfold.methods.embedding.arguments import INITS, Quality, StartMatrix
from rankfold.methods.fuzzy_graph.arguments import GRAPHS, Metric, Neighbors, Recall
from rankfold.methods.headline import Facts, dimensions, neighborhoods
from rankfold.methods.registry import LAYOUT, Input, Method, Transformation
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.presentation import CellElements, Presentation
from rankfold.pipeline.text import suggest_name

FEW_ROWS = 10_000
"""Number of rows up to which there are more epochs by default."""

EPOCHS = (500, 200)
"""Default number of epochs: for few rows, and for more."""

DENSITY_EPOCHS = 200
"""Additional epochs by default where density counts."""

STRONGEST = 1e6
"""Largest value of arguments that are factors of forces, since positions are float32."""

STEEPEST = {"a": 1e12, "b": 16.0}
"""Largest ``a`` and ``b`` of a curve ``1 / (1 + a d^(2 b))`` whose forces are finite at all squared distances
from 2^-32 to 2^32."""


@dataclass(frozen=True, slots=True)
class UmapArguments:
    """Arguments of ``rankfold.umap``, which describes them."""

    n_components: Annotated[int, Argument("dimensions of the embedding", least=1, below=1024)] = 2
    n_epochs: Annotated[
        int | None,
        Argument(
            "times that edges pull; 500 for up to 10000 rows by default, else 200", least=1, below=2**31
        ),
    ] = None
    min_dist: Annotated[float, Argument("distance up to which rows may lie together", least=0)] = 0.1
    spread: Annotated[float, Argument("distance over which they part", above=0)] = 1.0
    a: Annotated[
        float | None,
        Argument("of the curve 1 / (1 + a d^(2 b)), in place of min_dist", above=0, most=STEEPEST["a"]),
    ] = None
    b: Annotated[float | None, Argument("of the same curve", above=0, most=STEEPEST["b"])] = None
    negative_sample_rate: Annotated[
        int, Argument("random rows that a row is pushed from whenever an edge pulls", least=0, below=1024)
    ] = 5
    repulsion_strength: Annotated[float, Argument("of these pushes", least=0, most=STRONGEST)] = 1.0
    learning_rate: Annotated[
        float, Argument("of the first epoch; it falls to 0", least=0, most=STRONGEST)
    ] = 1.0
    density: Annotated[
        float | None,
        Argument(
            "how strongly rows that are far apart in the data are kept so; 2 as in densMAP",
            least=0,
            most=STRONGEST,
        ),
    ] = None
    density_share: Annotated[
        float, Argument("of the epochs, the last ones, in which density counts", least=0, most=1)
    ] = 0.3
    density_shift: Annotated[
        float, Argument("that is added to the variance of local radii in the layout", least=0, most=STRONGEST)
    ] = 0.1
    init: Annotated[
        str,
        Argument(
            "spectral, random, pca of --matrix, or a result of pca, umap, spectral or diffusion_map "
            "to begin at",
            holds=("pca", "umap", "spectral", "diffusion_map"),
            choices=INITS[:-1],
        ),
    ] = INITS[0]
    matrix: StartMatrix = None
    n_neighbors: Neighbors = None
    metric: Metric = None
    min_recall: Recall = None
    seed: Annotated[int, Argument("key of the random numbers", least=0, below=2**64)] = 0
    quality: Quality = None

    def check(self) -> None:
        """Raise ``InputError`` for an ``init`` that is not known, or a curve that is not possible."""
        if self.init not in INITS:
            raise InputError(
                f"init {self.init!r} is not known"
                f"{suggest_name(self.init, INITS)}: "
                f"take {', '.join(INITS[:-1])}, an array of positions, or a "
                "result of pca, umap, spectral or diffusion_map"
            )
        self._check_curve()

    def _check_curve(self) -> None:
        if (self.a is None) != (self.b is None):
            raise InputError("a and b are of one curve: give both, or min_dist and spread instead")
        if self.a is None and self.min_dist > self.spread:
            raise InputError(f"min_dist must be at most spread, {self.spread}, not {self.min_dist}")
        for name, value in zip("ab", self.curve(), strict=True):
            if not 0 < value <= STEEPEST[name]:
                raise InputError(
                    f"no curve 1 / (1 + a d^(2 b)) is near to min_dist {self.min_dist} and spread "
                    f"{self.spread}: {name} would be {value:.3g}. Give a and b, or other distances"
                )

    def epochs(self, rows: int) -> int:
        """Number of epochs of a layout of this many rows: ``n_epochs`` if given, else the default."""
        if self.n_epochs is not None:
            return self.n_epochs
        return EPOCHS[rows > FEW_ROWS] + (DENSITY_EPOCHS if self.density else 0)

    def curve(self) -> tuple[float, float]:
        """Parameters ``a`` and ``b`` of the curve, as they are given or fitted; NaN where no fit converges.

        References
        ----------
        ``find_ab_params`` of umap-learn: 1 / (1 + a d^(2 b)) by least squares to 1 up to ``min_dist``, and to
        ``exp(-(d - min_dist) / spread)`` beyond, at 300 places up to three times ``spread``.
        """
        if self.a is not None and self.b is not None:
            return self.a, self.b
        import numpy as np
        from scipy.optimize import curve_fit

        # In units of spread, so that the fit does not depend on its scale.
        x, least = np.linspace(0, 3, 300), self.min_dist / self.spread
        y = np.where(x < least, 1.0, np.exp(least - x))
        try:
            (a, b), _ = curve_fit(lambda d, a, b: 1 / (1 + a * d ** (2 * b)), x, y)
        except RuntimeError:  # it has not converged
            return math.nan, math.nan
        with np.errstate(over="ignore"):
            return float(a * np.float64(self.spread) ** (-2 * b)), float(b)

    def as_dict(self) -> dict[str, Any]:
        """Arguments that determine the layout, by name, as JSON types: part of the facts of a result."""
        return {"kind": "umap", **request_values(self)}


def headline(facts: Facts, attempt: Facts) -> str:
    """Line of text on a layout and its losses, from facts of the result; ``attempt`` is not used."""
    losses = f"loss of edges {facts['edge_loss']:.4g}, of pairs {facts['pair_loss']:.4g}"
    return f"{dimensions(facts)}, {facts['epochs']} epochs; {losses}{neighborhoods(facts)}"


UMAP = Method(
    "umap",
    "Rows laid out in few dimensions by the graph of their neighbors.",
    UmapArguments,
    "rankfold.methods.umap.umap:umap_task",
    topic=LAYOUT,
    inputs=(Input("neighbors", (*GRAPHS, "knn"), matrix_key="input"),),
    matrices=("embedding",),
    arrays=("embedding", "radius_data if density", "radius_embedding if density"),
    loops="rankfold.methods.umap.layout:warm_layout",
    edition=2,  # each vertex takes its edges from another one on in every epoch
    headline=headline,
    transformation=Transformation(
        "rankfold.methods.umap.transform:placement_task",
        "rankfold.methods.umap.transform:warm_placement",
        by_neighbors=True,
    ),
    presentation=Presentation(cells=CellElements("umap", "X_umap")),
    pending="rankfold.methods.umap.umap:pending_task",
)
