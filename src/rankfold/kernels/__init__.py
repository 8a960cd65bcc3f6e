"""Numerics on arrays in memory: they read no files, move nothing between devices, know no Dask.

    condition     (x - shift) * unit per column, and its moments        numba
    count_sketch  rows added to few buckets, with random signs           numba
    panel         the fused pass: Y = D Q and Z += D'Y                   BLAS; CuPy
    sketch        range, co-range and core of a panel in one go         BLAS
    moments       count, mean and scatter of rows, in pieces that merge  BLAS
    qr            R factors of panels and of stacked R factors           LAPACK
    neighbours    nearest rows: bounds of products, exact distances      numba
    ranks         how many rows are nearer than given ones               numba
    nonnegative   nonnegative least squares, row by row                  numba
    multiplicative  the same, by multiplication                          numba
    splitting     least squares on a box or a simplex, row by row        numba
    stationarity  the projected gradient, summed by component            numba
    divergence    data over model, and their Kullback-Leibler divergence  numba
    orthonormal   a block made orthonormal, also against a basis         LAPACK
    small         leading eigenpairs and singular triplets, signs        LAPACK
    mixing        a digest of many words at the speed of memory          numba
    normal        Gaussian rows from counters: (seed, purpose, index)

Imports nothing of ours outside this folder. ``_dispatch.py`` joins a contract and its tuned bodies.
"""
