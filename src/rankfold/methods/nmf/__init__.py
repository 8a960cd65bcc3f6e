"""Nonnegative matrix factorization.

arguments        types, defaults and limits of the arguments
request          parameters of a factorization, checked; starts of the caller
task             what arguments ask for
nmf              on a compressed copy, then on the matrix
start            where the short factor starts
alternation      passes until the error falls no more
passes           the fold of an iteration, by loss and by what a matrix is stored as
weighted         weights of entries, and gaps
in_memory        iterations on a small sparse matrix that is read once
row_solvers      rows of one factor, given the other
penalty          penalties, weighed as scikit-learn weighs them
warm             compiled loops, run once
"""
