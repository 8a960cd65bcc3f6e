"""Nonnegative matrix factorization.

arguments        types, defaults and limits of the arguments
request          parameters of a factorization, checked; starts of the caller
nmf              on a compressed copy, then on the matrix
start            where the short factor starts
alternation      passes until the error falls no more
frobenius_pass   an iteration of least squares, fused
kl_pass          an iteration of the Kullback-Leibler divergence, fused
sparse_passes    both of them over stored numbers alone
row_solvers      rows of one factor, given the other
penalty          penalties, weighed as scikit-learn weighs them
warm             compiled loops, run once
"""
