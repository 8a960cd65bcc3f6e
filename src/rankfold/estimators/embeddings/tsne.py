"""``TSNE``: t-SNE embedding of any number of samples."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

import rankfold
from rankfold.api.execute import run
from rankfold.estimators.embeddings.embedding import METRICS, STARTS, Embedding, first_positions, lists_of
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import samples_of
from rankfold.methods.knn.arguments import PRECOMPUTED, SET_NAMES
from rankfold.methods.tsne.arguments import LEAST_RATE, NEIGHBORS_OF_PERPLEXITY
from rankfold.methods.tsne.transform import NewRows
from rankfold.pipeline.formats import open_source

GRADIENT = 4.0
"""Ratio of scikit-learn's gradients to those of ``rankfold.tsne``, whose learning rates are larger by it."""


@labeled
class TSNE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Embedding):  # type: ignore[misc]
    """Samples in few dimensions, each with its neighbors around it; see ``rankfold.tsne``.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions.
    perplexity : float or list, default=30
        Effective number of neighbors of a sample; less than the number of samples. For several values,
        affinities are averaged.
    early_exaggeration, early_exaggeration_iter, exaggeration, initial_momentum, final_momentum
        As for ``rankfold.tsne``.
    learning_rate : float or "auto", default="auto"
        As in scikit-learn: a quarter of that of ``rankfold.tsne``.
    max_iter : int, default=1000
        Number of steps, including the early ones.
    n_iter : int, optional
        Instead of ``max_iter``: number of steps after the early ones, as openTSNE counts.
    min_grad_norm : float, default=1e-7
        Norm of scikit-learn's gradient at which steps end.
    metric : str, default="euclidean"
        A metric of ``rankfold.knn`` other than "inner_product"; or "precomputed", for distances.
    init : {"pca", "random", "spectral"} or array of shape (n_samples, n_components), default="pca"
        First positions of samples.
    random_state : int, RandomState or None, default=None
        Embeddings are the same for any number of threads in any case.
    method, angle, n_iter_without_progress, metric_params, verbose, n_jobs
        Of no effect: in one and two dimensions repulsion is computed on a grid, whose error
        ``rankfold.tsne`` reports, and steps end by the gradient alone.
    min_recall : float, optional
        Neighbors may be approximate, as in ``rankfold.knn``.
    memory : int or str, optional
        As for ``rankfold.svd``, for each step.

    Attributes
    ----------
    embedding_ : (n_samples, n_components) float32 array
    kl_divergence_ : float
    n_iter_ : int
        Number of steps done.
    learning_rate_ : float
        Learning rate of early steps.
    history_ : (n_measures, 3) array
        See ``rankfold.tsne``.
    n_features_in_ : int
    feature_names_in_
        If samples have names of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import TSNE
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> TSNE(perplexity=5).fit_transform(x).shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(numbers.Integral, 1, None, closed="left")],
        "perplexity": [Interval(numbers.Real, 0, None, closed="neither"), "array-like"],
        "early_exaggeration": [Interval(numbers.Real, 1, None, closed="left")],
        "early_exaggeration_iter": [Interval(numbers.Integral, 0, None, closed="left")],
        "exaggeration": [Interval(numbers.Real, 0, None, closed="neither"), None],
        "learning_rate": [StrOptions({"auto"}), Interval(numbers.Real, 0, None, closed="neither")],
        "max_iter": [Interval(numbers.Integral, 250, None, closed="left")],
        "n_iter": [Interval(numbers.Integral, 0, None, closed="left"), None],
        "initial_momentum": [Interval(numbers.Real, 0, 1, closed="left")],
        "final_momentum": [Interval(numbers.Real, 0, 1, closed="left")],
        "n_iter_without_progress": [Interval(numbers.Integral, -1, None, closed="left")],
        "min_grad_norm": [Interval(numbers.Real, 0, None, closed="left")],
        "metric": [StrOptions({*METRICS, PRECOMPUTED})],
        "metric_params": [dict, None],
        "init": [StrOptions(set(STARTS)), np.ndarray],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "method": [StrOptions({"barnes_hut", "exact", "fft"})],
        "angle": [Interval(numbers.Real, 0, 1, closed="both")],
        "n_jobs": [None, numbers.Integral],
        "min_recall": [Interval(numbers.Real, 0, 1, closed="left"), None],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        perplexity: Any = 30.0,
        early_exaggeration: float = 12.0,
        early_exaggeration_iter: int = 250,
        exaggeration: float | None = None,
        learning_rate: float | str = "auto",
        max_iter: int = 1000,
        n_iter: int | None = None,
        initial_momentum: float = 0.8,
        final_momentum: float = 0.8,
        n_iter_without_progress: int = 300,
        min_grad_norm: float = 1e-7,
        metric: str = "euclidean",
        metric_params: dict[str, Any] | None = None,
        init: Any = "pca",
        verbose: int = 0,
        random_state: Any = None,
        method: str = "barnes_hut",
        angle: float = 0.5,
        n_jobs: int | None = None,
        min_recall: float | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.perplexity = perplexity
        self.early_exaggeration = early_exaggeration
        self.early_exaggeration_iter = early_exaggeration_iter
        self.exaggeration = exaggeration
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_iter = n_iter
        self.initial_momentum = initial_momentum
        self.final_momentum = final_momentum
        self.n_iter_without_progress = n_iter_without_progress
        self.min_grad_norm = min_grad_norm
        self.metric = metric
        self.metric_params = metric_params
        self.init = init
        self.verbose = verbose
        self.random_state = random_state
        self.method = method
        self.angle = angle
        self.n_jobs = n_jobs
        self.min_recall = min_recall
        self.memory = memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> TSNE:
        """Embed samples in rows, in memory or on disk; ``y`` is ignored."""
        self._require_start()
        X = samples_of(self, X, 2, bits=self.metric in SET_NAMES)
        seed = int(check_random_state(self.random_state).randint(2**31))
        early, rows = min(self.early_exaggeration_iter, self.max_iter), X.shape[0]
        exaggeration = 1.0 if self.exaggeration is None else float(self.exaggeration)
        auto = self.learning_rate == "auto"
        result = rankfold.tsne(
            self._neighbors(X, seed),
            n_components=self.n_components,
            perplexity=self._perplexities(rows),
            n_iter=self.max_iter - early if self.n_iter is None else self.n_iter,
            early_exaggeration=self.early_exaggeration,
            early_exaggeration_iter=early,
            exaggeration=exaggeration,
            learning_rate=None if auto else GRADIENT * float(self.learning_rate),
            initial_momentum=self.initial_momentum,
            final_momentum=self.final_momentum,
            min_grad_norm=self.min_grad_norm / GRADIENT,
            init=first_positions(self, X, seed),
            seed=seed,
            memory=self.memory,
        )
        self.embedding_, self.history_ = (np.asarray(result[each][...]) for each in ("embedding", "history"))
        self.kl_divergence_, self.n_iter_ = result.attrs["kl_divergence"], result.attrs["steps"]
        own = max(LEAST_RATE, rows / self.early_exaggeration) / GRADIENT
        self.learning_rate_ = own if auto else float(self.learning_rate)
        self._n_features_out = self.n_components
        self._fitted_samples, self._facts = X, dict(result.attrs)
        return self

    def transform(self, X: Any) -> Any:
        """Positions (m, n_components) of samples in the embedding, by their neighbors among the fitted ones.

        A fitted sample has its own position. New samples are independent: see ``rankfold.transform``.
        """
        check_is_fitted(self)
        neighbors = self._lists_of_new(X, 30, self._facts["request"]["seed"])
        task = NewRows.of(neighbors, open_source(self.embedding_), self._facts)
        return np.asarray(run(task, {"memory": self.memory}).embedding[...])

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Embed samples in rows and return their positions (m, n_components); ``y`` is ignored."""
        return self.fit(X).embedding_

    def _perplexities(self, rows: int) -> Any:
        """List of the perplexities, each limited to [1, rows - 1]; ``rows`` is the number of samples."""
        each = np.atleast_1d(np.asarray(self.perplexity, np.float64))
        if each.max() >= rows:
            raise ValueError(f"perplexity ({each.max():g}) must be less than n_samples ({rows})")
        return np.clip(each, 1, rows - 1).tolist()

    def _neighbors(self, X: Any, seed: int) -> Any:
        """Result of ``rankfold.knn`` for samples: three times as many neighbors as the largest perplexity."""
        rows = X.shape[0]
        k = max(1, min(rows - 1, int(NEIGHBORS_OF_PERPLEXITY * max(self._perplexities(rows)))))
        return lists_of(self, X, k, seed)
