"""Nearest neighbors, exactly.

arguments     types, defaults and limits of the arguments
request       parameters of a search, checked; metrics
plan          groups of blocks that fit, and what they cost
knn           the task: from a request to a result
extend        an earlier search, extended by new rows
row_blocks    rows of a block: as stored, as multiplied, and their norms
pair_fold     lists of nearest rows out of two blocks
sparse_rows   sparse rows of a block, and the edges of blocks
sparse_fold   lists of nearest rows out of two blocks of sparse rows
precomputed   lists out of given distances
write_lists   finished lists written into the chunks of the result
graph         the lists as the graph of a sparse matrix
warm          compiles loops by running each once
"""
