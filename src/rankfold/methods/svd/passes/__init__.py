"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, from one read.

dense         over panels, grain by grain
sparse        over stored numbers alone
sparse_gram   products of columns with columns, over stored numbers alone
choice        choice of a fold by the storage of a matrix
"""
