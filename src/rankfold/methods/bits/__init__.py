"""Rows as sets, by Hamming and Jaccard distance: packed bits, and sparse rows without their zeros.

rows     rows of a block as packed bits, or as the columns of their members
folds    lists of nearest rows out of two blocks of either
choice   which of both a search takes, if any
warm     compiled loops, run once
"""
