"""Solvers of svd, pca and qr: one file, one object in the registry.

solver           what a solver says of itself, and the registry
blocks           what solvers by blocks of vectors share
gram             one pass into a scatter matrix, and its eigenvectors
krylov           fused block Krylov, stopped by a free error estimate or by what it holds
subspace         fused subspace iteration, with room for one block
sketch           a single pass into sketches, and what can be reconstructed from them
sketch_pass      its fold: range, co-range, core and error sketches
tsqr             R by one pass over the matrix itself, and the long factor as a recipe
preconditioned   its folds: R factors of panels, with the help of a sample
whitening        a basis in which columns are orthonormal
lanczos          block Lanczos on a matrix that is read once and stays in memory, sparse or dense
qr               QR factorization
"""
