"""Products, factorizations, sketches and sums of panels.

center_scale   (x - shift) * unit per column, and its moments         numba
complete_rows  missing numbers of rows, by a model of low rank        numba
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
