"""Modules that several methods share. Every fold states the memory that it allocates.

panels              panels (rows in memory at a time) of a matrix, cut into grains (rows of one product)
sparse_panels       stored numbers of a sparse matrix, and the terms of rank one that center them
conditioned         panels that are centered and scaled
column_statistics   sums and squares of columns: the pass that scaling needs first
finite              NaN, Inf and negative numbers: counted, then refused
square_range        numbers whose squares leave the range of float64, refused
row_weights         weights of rows
sample              rows that are read before any pass
start               provisional mean and unit, and the first block, from a few rows
combination         combinations of blocks on scratch
scratch_gram        Gram matrix and R factor of such combinations
held_blocks         blocks of rows that stay in memory while others are read, for folds of pairs of blocks
write_rows          combinations, written into the chunks of the result
outputs             arrays and facts of results: names of axes, types and ranges
"""
