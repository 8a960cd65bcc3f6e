"""Products of sparse rows in the layout of SciPy's CSR, without making them dense.

A line is a row of CSR or a column of CSC; a block is some vectors that are multiplied together.

products       rows with a block, their columns' order, columns with a block   numba
moments        sums of lines, and rows added to buckets                        numba
kept           stored entries of lines that remain when others are left out    numba
sampled        entries of a product of dense matrices, at stored positions     numba
slabs          the layout in which a block of vectors is multiplied fastest
gram           columns with columns, added to a matrix                         numba and BLAS
row_products   rows with rows, by lists of the rows that have a column         numba
"""
