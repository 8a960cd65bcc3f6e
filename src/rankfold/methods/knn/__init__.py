"""Nearest neighbors, exactly.

arguments     types, defaults and limits of the arguments
request       parameters of a search, checked; metrics
plan          groups of blocks that fit, and what they cost
knn           from a request to a result
extend        an earlier search, to be gone on with
row_blocks    rows of a block: as stored, ready to multiply, and their norms
pair_fold     lists of nearest rows out of two blocks
sparse_rows   sparse rows of a block, and where blocks end
sparse_fold   lists of nearest rows out of two blocks of sparse rows
precomputed   lists out of distances that are given
write_lists   finished lists, into the chunks of the result
graph         the lists as the graph of a sparse matrix
warm          compiled loops, run once
"""
