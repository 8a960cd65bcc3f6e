"""``UMAP``: embedding of any number of samples by their neighbors."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

import rankfold
from rankfold.api.execute import run
from rankfold.estimators.embeddings.embedding import METRICS, STARTS, Embedding, first_positions, graph_of
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import samples_of
from rankfold.methods.fuzzy_graph.new_rows import NewNeighbors
from rankfold.methods.knn.arguments import PRECOMPUTED, SET_NAMES
from rankfold.methods.umap.transform import Placement
from rankfold.pipeline.formats import open_source


@labeled
class UMAP(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Embedding):  # type: ignore[misc]
    """Samples laid out in few dimensions, so that neighbors lie together; see ``rankfold.umap``.

    Parameters
    ----------
    n_neighbors : int, default=15
        Number of neighbors of each sample, including itself.
    n_components : int, default=2
        Dimensions.
    metric : str, default="euclidean"
        A metric of ``rankfold.knn`` other than "inner_product"; or "precomputed", for distances.
    n_epochs, learning_rate, min_dist, spread, a, b, negative_sample_rate, repulsion_strength
        As for ``rankfold.umap``.
    set_op_mix_ratio, local_connectivity, target_metric, target_weight
        As for ``rankfold.fuzzy_graph``.
    init : {"spectral", "pca", "random"} or array of shape (n_samples, n_components), default="spectral"
        First positions of samples: eigenvectors of the graph, or their first principal components, which are
        also used if samples are too few for eigenvectors.
    densmap : bool, default=False
        True to preserve local density: rows far from their neighbors stay far from them.
    dens_lambda, dens_frac, dens_var_shift : float
        ``density``, ``density_share`` and ``density_shift`` of ``rankfold.umap``.
    output_dens : bool, default=False
        True if ``fit_transform`` is to return local radii too, of the samples and in the layout.
    random_state : int, RandomState or None, default=None
        Layouts are the same for any number of threads in any case.
    min_recall : float, optional
        Neighbors may be approximate, as in ``rankfold.knn``.
    memory : int or str, optional
        As for ``rankfold.svd``, for each step.

    Attributes
    ----------
    embedding_ : (n_samples, n_components) float32 array
    graph_ : CSR array
        Weights of neighbors: see ``rankfold.fuzzy_graph``.
    rad_orig_, rad_emb_ : (n_samples,) float32 arrays
        With ``densmap`` or ``output_dens``: logarithms of mean squared distances to neighbors, in the data
        weighted by the graph, in the layout by closeness.
    n_features_in_ : int
    feature_names_in_
        If samples have names of columns.

    Notes
    -----
    Each step reads the samples from their location; the graph and the layout are held in memory. The fitted
    samples are kept, or their location, for ``transform`` to compare others with.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import UMAP
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> UMAP(n_neighbors=5, n_epochs=20).fit_transform(x).shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_neighbors": [Interval(numbers.Integral, 2, None, closed="left")],
        "n_components": [Interval(numbers.Integral, 1, None, closed="left")],
        "metric": [StrOptions({*METRICS, PRECOMPUTED})],
        "n_epochs": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(numbers.Real, 0, None, closed="neither")],
        "init": [StrOptions(set(STARTS)), "array-like", HasMethods("attrs")],
        "min_dist": [Interval(numbers.Real, 0, None, closed="left")],
        "spread": [Interval(numbers.Real, 0, None, closed="neither")],
        "set_op_mix_ratio": [Interval(numbers.Real, 0, 1, closed="both")],
        "local_connectivity": [Interval(numbers.Real, 0, None, closed="left")],
        "repulsion_strength": [Interval(numbers.Real, 0, None, closed="left")],
        "negative_sample_rate": [Interval(numbers.Integral, 0, None, closed="left")],
        "a": [numbers.Real, None],
        "b": [numbers.Real, None],
        "target_metric": [StrOptions({"categorical", "euclidean"})],
        "target_weight": [Interval(numbers.Real, 0, 1, closed="both")],
        "densmap": ["boolean"],
        "dens_lambda": [Interval(numbers.Real, 0, None, closed="left")],
        "dens_frac": [Interval(numbers.Real, 0, 1, closed="both")],
        "dens_var_shift": [Interval(numbers.Real, 0, None, closed="left")],
        "output_dens": ["boolean"],
        "random_state": ["random_state"],
        "min_recall": [Interval(numbers.Real, 0, 1, closed="left"), None],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_neighbors: int = 15,
        n_components: int = 2,
        *,
        metric: str = "euclidean",
        n_epochs: int | None = None,
        learning_rate: float = 1.0,
        init: Any = "spectral",
        min_dist: float = 0.1,
        spread: float = 1.0,
        set_op_mix_ratio: float = 1.0,
        local_connectivity: float = 1.0,
        repulsion_strength: float = 1.0,
        negative_sample_rate: int = 5,
        a: float | None = None,
        b: float | None = None,
        target_metric: str = "categorical",
        target_weight: float = 0.5,
        densmap: bool = False,
        dens_lambda: float = 2.0,
        dens_frac: float = 0.3,
        dens_var_shift: float = 0.1,
        output_dens: bool = False,
        random_state: Any = None,
        min_recall: float | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.metric = metric
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.init = init
        self.min_dist = min_dist
        self.spread = spread
        self.set_op_mix_ratio = set_op_mix_ratio
        self.local_connectivity = local_connectivity
        self.repulsion_strength = repulsion_strength
        self.negative_sample_rate = negative_sample_rate
        self.a, self.b = a, b
        self.target_metric, self.target_weight = target_metric, target_weight
        self.densmap = densmap
        self.dens_lambda = dens_lambda
        self.dens_frac = dens_frac
        self.dens_var_shift = dens_var_shift
        self.output_dens = output_dens
        self.random_state = random_state
        self.min_recall = min_recall
        self.memory = memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> UMAP:
        """Embed samples in rows, in memory or on disk; those with equal labels in ``y`` closer together.

        Labels are words or numbers, -1 if unknown; or numbers whose distances count, depending on
        ``target_metric``.
        """
        self._require_start()
        X = samples_of(self, X, 3, bits=self.metric in SET_NAMES)
        seed = int(check_random_state(self.random_state).randint(2**31))
        beside = {"target_metric": self.target_metric, "target_weight": self.target_weight}
        is_spread = self.densmap or self.output_dens
        weights = graph_of(self, X, seed, targets=y, radii=is_spread, **beside)
        layout = rankfold.umap(
            weights,
            n_components=self.n_components,
            n_epochs=self.n_epochs,
            learning_rate=self.learning_rate,
            min_dist=self.min_dist,
            spread=self.spread,
            a=self.a,
            b=self.b,
            repulsion_strength=self.repulsion_strength,
            negative_sample_rate=self.negative_sample_rate,
            density=self.dens_lambda * self.densmap if is_spread else None,
            density_share=self.dens_frac,
            density_shift=self.dens_var_shift,
            init=first_positions(self, X, seed),
            seed=seed,
            memory=self.memory,
        )
        self.graph_, self.embedding_ = weights.graph, np.asarray(layout.embedding[...])
        if is_spread:
            self.rad_orig_, self.rad_emb_ = layout.radius_data[...], layout.radius_embedding[...]
        self._n_features_out = self.n_components
        self._fitted_samples, self._layout_facts = X, dict(layout.attrs)
        return self

    def transform(self, X: Any) -> Any:
        """Positions (m, n_components) of samples in the layout, by their neighbors among the fitted ones.

        A fitted sample has its own position. New samples are independent: see ``rankfold.transform``.
        """
        check_is_fitted(self)
        facts = self._layout_facts
        stored = self._lists_of_new(X, self.n_neighbors, facts["request"]["seed"])
        neighbors = NewNeighbors(stored, facts["mean_distance"], facts["local_connectivity"])
        task = Placement.of(neighbors, open_source(self.embedding_), facts)
        return np.asarray(run(task, {"memory": self.memory}).embedding[...])

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Embed samples in rows and return their positions, with radii if asked for; ``y`` as in ``fit``."""
        self.fit(X, y)
        return (self.embedding_, self.rad_orig_, self.rad_emb_) if self.output_dens else self.embedding_
