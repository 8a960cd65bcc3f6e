"""Rows as sets, by Hamming and Jaccard distance: packed bits, and sparse rows without their zeros.

rows     rows of a block as packed bits, or as the columns of their members
folds    nearest rows among pairs of blocks (runs of rows) of packed bits, or of sets
choice   decides between packed bits and sparse rows, for searches of sets
"""
