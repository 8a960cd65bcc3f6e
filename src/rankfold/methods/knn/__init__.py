"""Nearest neighbors, exactly.

Rows are cut into blocks, runs of rows whose lists of neighbors are one accumulator. A task holds a group of
blocks in memory, while other blocks pass one by one and are compared with these.

arguments     types, defaults and limits of the arguments
request       parameters of a search, checked; metrics
plan          groups of blocks that fit, and what they cost
knn           the task: from a request to a result
extend        an earlier search, extended by new rows
row_blocks    rows of a block: as stored, as multiplied, and their norms
projection    rows in leading directions of a sample, whose short products bound distances
pair_fold     compares the rows of two blocks, and updates their lists of nearest rows
sparse_rows   sparse rows of a block, and the edges of blocks
sparse_fold   compares the rows of two blocks of sparse rows
precomputed   lists of nearest rows from distances that are given
write_lists   finished lists written into the chunks of the result
graph         the lists as the graph of a sparse matrix
"""
