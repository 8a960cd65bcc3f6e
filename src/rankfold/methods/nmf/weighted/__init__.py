"""Nonnegative factors of a matrix with weighted entries, or with gaps.

task            the task: matrix, weights, and parameters of the factors, checked; iterations on a sample of
                rows, before any on all rows
rows            weights of rows, without a second matrix
sources         a matrix and its weights as one source, and gaps filled with zeros; checked grains of both
least_squares   the fold of an iteration by Gram matrices of each row and column
ratios          the fold of an iteration by multiplicative updates, of either loss
alternation     iterations, and memory of both folds
"""
