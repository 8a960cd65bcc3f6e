"""Singular value decomposition, principal components and QR.

arguments          arguments of svd, pca and qr
request            a request, checked
orientation        side along which a matrix is swept, widths of blocks, numbers of passes
strategy           solver, widths, cuts
plan               sizes of every sweep, and advice where they do not fit
svd                from a request to a result
operator           operators on blocks of vectors, the matrix as one, and the loop of iterations
completion         passes that complete missing numbers before a solver begins
passes             the fused pass: both products of a block from one read
unseen_directions  directions that a block from a sample misses, from a sketch of all rows
ritz               singular triplets from blocks Q, Y and Z
long_factor        factor of the longer side as a recipe, formed from scratch (intermediate files)
error_estimates    residuals, gaps, rounding
write              arrays and facts of a result
in_memory          block Lanczos on a matrix in memory
solvers            one solver, one file
"""
