"""Sums of kernels over all pairs of points, and densities: see ``docs/sums.md``."""

from __future__ import annotations

from typing import Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.sums.arguments import DENSITY, KERNEL_SUM
from rankfold.pipeline.storage.result import Result


@method_function(KERNEL_SUM)
def kernel_sum(x: object, **arguments: Any) -> Result:
    """Sums of a kernel over all rows, at every row or elsewhere, and forces: N bodies, charges, smoothing.

    Parameters
    ----------
    x : path, array or Source, (n, d)
        Sources: anything ``svd`` takes. All rows are held in memory, in 8 bytes a value.
    weights : (n,) numbers, or anything ``svd`` takes, (n, 1), optional
        Masses, charges, or other weights of the sources; of any sign. 1 by default.
    targets : like ``x``, (m, d), optional
        Points at which sums are computed; read block by block. By default at the sources, each of which is
        left out of its own sum.
    kernel : str
        With r the distance: "gravity" ``-1 / sqrt(r^2 + softening^2)``, the potential; "coulomb" the same
        without the sign; "gaussian" ``exp(-r^2 / 2 h^2)``, "cauchy" ``1 / (1 + r^2 / h^2)`` and
        "squared_cauchy", its square, with h the bandwidth.
    softening : float, >= 0
        Softening of gravity and coulomb. At 0, sources at the position of a target have no effect on it.
    bandwidth : float, > 0, optional
        Bandwidth of the other kernels, 1 by default.
    forces : bool
        True to compute forces too: negative gradients of sums. Gravity attracts, equal charges repel.
    tol : float
        Bound on the error of 99 of 100 targets, of sums and of forces, relative to the exact ones; to the
        sums of magnitudes of all contributions if weights have both signs. 0 sums source by source.
    seed : int
        Key of the random numbers that choose the targets whose errors are measured.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``sums`` (m,) and ``forces`` (m, d), float64. ``attrs`` has the ``error`` of 99 of 100 of
        ``error_sample`` targets, whose sums were also computed source by source, and ``error_bound``, which
        the same error over all targets exceeds for at most one in twenty samples (95 % confidence);
        ``opening`` and ``order``, the largest angle of nodes and the order of their expansion; and the
        numbers of ``pairs`` and ``nodes`` evaluated. Nothing is measured, and ``error_sample`` is 0, if all
        pairs are summed anyway, with errors of 0; and at up to 262 144 targets of a gaussian without forces,
        where ``error`` and ``error_bound`` are ``tol`` itself: the neglected terms are smaller at every
        target.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``PlanError`` also where no opening of the tree meets ``tol`` and there are too many
        pairs for exact sums.

    Notes
    -----
    Up to three columns are summed by a tree, in ``n log n``; more columns, and ``tol=0``, over
    all pairs. The result has the same bytes for any memory, threads and workers.

    References
    ----------
    Barnes, Hut, A hierarchical O(N log N) force-calculation algorithm, Nature 324, 1986. See
    ``rankfold.kernels.sums.tree_sums``.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> result = rf.kernel_sum(x, kernel="gaussian", bandwidth=1.0)
    """
    return run_method(KERNEL_SUM, (x,), arguments)


@method_function(DENSITY)
def density(x: object, **arguments: Any) -> Result:
    """Kernel density estimate: logarithm of the density from which samples are drawn.

    Parameters
    ----------
    x : path, array or Source, (n, d)
        Samples: anything ``svd`` takes. All rows are held in memory, in 8 bytes a value.
    targets : like ``x``, (m, d), optional
        Points at which the density is computed; read block by block. By default at the samples themselves,
        each of which counts there as well.
    bandwidth : float, > 0, or {"scott", "silverman"}
        Length h of the kernel; or ``n^(-1 / (d + 4))`` and ``(n (d + 2) / 4)^(-1 / (d + 4))``, for columns
        whose deviation is about 1.
    kernel : str
        "gaussian", "tophat", "epanechnikov", "exponential", "linear" or "cosine", as scikit-learn has them.
    weights : (n,) numbers, or anything ``svd`` takes, (n, 1), optional
        Weight of each sample, at least 0.
    tol : float
        Bound on the relative error of 99 of 100 densities, for the gaussian; other kernels are summed
        exactly. 0 for exact sums.
    seed : int
        Key of the random numbers that choose the targets whose errors are measured.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``log_density`` (m,) float64: accurate far from all samples too; minus infinity where a compact kernel
        reaches no sample. ``attrs`` as for ``kernel_sum`` without forces.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``kernel_sum``.

    Notes
    -----
    Up to three columns are summed by a tree, which leaves out what is too far to count; more
    columns over all pairs.

    References
    ----------
    Silverman, Density estimation for statistics and data analysis, 1986; Scott, Multivariate density
    estimation, 1992: the rules for bandwidths.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.density(np.random.default_rng(0).normal(size=(60, 3)), bandwidth=0.5)
    """
    return run_method(DENSITY, (x,), arguments)
