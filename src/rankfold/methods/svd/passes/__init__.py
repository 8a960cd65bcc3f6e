"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, from one read.

dense         over panels, grain by grain
sparse        over stored numbers alone
sparse_gram   products of columns with columns, of stored numbers alone
choice        which of them, by what a matrix is stored as
"""
