"""Products, factorizations, sketches and sums of panels (rows that are read at once).

A grain is the rows of one matrix product, a part of a panel that stays in cache.

center_scale   (x - shift) * scale per column, its sums and squares   numba
complete_rows  missing entries of rows, by a model of low rank        numba
count_sketch   rows added to few buckets, with random signs           numba
dense          leading eigenpairs and singular triplets, signs        LAPACK
gaussian       Gaussian rows from counters: (seed, purpose, index)
moments        count, mean and scatter of rows, in pieces that merge  BLAS
orthonormal    a block made orthonormal, also against a basis         LAPACK
panel          the fused pass: Y = D Q and Z += D'Y                   BLAS; CuPy
products       products of grains with small matrices, and their sums   BLAS
qr             R factors of panels and of stacked R factors           LAPACK
sketch         range, co-range and core of a panel in one go          BLAS
"""
