"""Modules that several methods share. Every fold states the memory that it allocates.

panels              panels (rows in memory at a time) of a matrix, cut into grains (rows of one product);
                    NaN, Inf and negative numbers: counted, then refused
sparse_panels       stored numbers of a sparse matrix, and the terms of rank one that center them
conditioned         panels that are centered and scaled; sums and squares of columns: the pass that scaling
                    needs first
square_range        numbers whose squares leave the range of float64, refused
row_weights         weights of rows
sample              rows that are read before any pass
start               provisional mean and unit, and the first block of vectors, from a few rows
combination         linear combinations of matrices on scratch: their rows, Gram matrix and R factor, and
                    their rows written into the chunks of the result
held_blocks         blocks of rows that stay in memory while others are read, for folds of pairs of blocks
outputs             arrays and facts of results: names of axes, types and ranges
"""
