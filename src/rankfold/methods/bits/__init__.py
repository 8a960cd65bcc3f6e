"""Rows as sets, by Hamming and Jaccard distance: packed bits, and sparse rows without their zeros.

rows     rows of a block as packed bits, or as the columns of their members
folds    lists of nearest rows out of two blocks of packed bits, or of sets
choice   decides between packed bits and sparse rows, for searches of sets
warm     compiles loops by running each once
"""
