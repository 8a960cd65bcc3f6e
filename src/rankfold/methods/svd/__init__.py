"""Singular value decomposition, principal components and QR.

arguments         what svd, pca and qr may be asked
request           what is asked, checked
orientation       which side is swept, and whether a matrix is sparse
strategy          solver, widths, cuts
plan              every sweep in numbers, and what does not fit
svd               from a request to a result
operator          what is applied to blocks of vectors, the matrix as one, and the loop of iterations
completion        what is missing, completed by passes before a solver begins
passes            the fused pass: both products of a block from one read
missing           what a block of a sample does not hold, from a sketch of all rows
ritz              singular triplets from blocks Q, Y and Z
long_factor       the long factor as a recipe, formed from scratch
error_estimates   residuals, gaps, rounding
write             what a solver found, as a result
in_memory         block Lanczos on a matrix in memory
solvers           one solver, one file
"""
