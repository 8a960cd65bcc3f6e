"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, from one read.

dense         over all elements, panel by panel (rows in memory at a time)
sparse        over stored numbers alone
sparse_gram   products of columns with columns, over stored numbers alone
choice        choice of a fold by the storage of a matrix
"""
