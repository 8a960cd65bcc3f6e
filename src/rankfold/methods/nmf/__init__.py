"""Nonnegative matrix factorization.

arguments        types, defaults and limits of the arguments
request          checked parameters of a factorization; starting factors from the caller
task             from arguments to a task
nmf              the task: factorize a compressed copy, then the matrix
start            starting values of the short factor
alternation      passes until the error stops falling; penalties, weighted as in scikit-learn
passes           the fold of an iteration, by loss and by storage of the matrix
weighted         weights of entries, and gaps
in_memory        iterations on a small sparse matrix that is read once
row_solvers      solvers for rows of one factor, given the other
new_rows         coordinates of new rows in given factors
"""
