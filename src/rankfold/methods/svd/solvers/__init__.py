"""Solvers of svd, pca and qr: one file, one object in the registry.

solver           base class of solvers, and their registry
blocks           base class of solvers by blocks of vectors
gram             one pass into a scatter matrix, and its eigenvectors
krylov           fused block Krylov, stopped by an error estimate that costs no pass, or by the share of the
                 norm that the basis holds
subspace         fused subspace iteration, with room for one block
sketch           a single pass into sketches, and a reconstruction from them; the fold of that pass: range,
                 co-range, core and error sketches
tsqr             R by one pass over the matrix itself, and the long factor as a recipe
preconditioned   folds of tsqr: R factors of panels, preconditioned by a sample
whitening        a basis in which columns are orthonormal
lanczos          block Lanczos on a matrix that is read once and stays in memory, sparse or dense
qr               QR factorization
"""
