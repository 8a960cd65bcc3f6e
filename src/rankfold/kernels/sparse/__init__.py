"""Products of sparse rows in the layout of SciPy's CSR, without making them dense.

products       rows with a block, their columns' order, columns with a block   numba
moments        sums of lines, and rows added to buckets                        numba
kept           stored numbers that are kept when places are left out            numba
sampled        products of dense rows at stored places                         numba
slabs          the layout in which a block of vectors is multiplied fastest
gram           columns with columns, added to a matrix                         numba and BLAS
row_products   rows with rows, by lists of the rows that hold a column         numba
"""
