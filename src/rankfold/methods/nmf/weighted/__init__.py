"""Nonnegative factors of a matrix whose entries count more, less, or not at all.

task            the matrix, its weights, and the parameters of its factors, checked
rows            weights of rows: no second matrix
sources         a matrix and its weights as one source, and gaps filled with zeros
panels          grains of both, checked
sampled         iterations on some rows, before any on all
least_squares   the fold of an iteration by Gram matrices of each row and column
ratios          the fold of an iteration by multiplicative updates, of either loss
alternation     iterations, and what both folds take in memory
"""
