"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, from one read.

dense    over panels, grain by grain
sparse   over stored numbers alone
choice   which of the two, by what a matrix is stored as
"""
