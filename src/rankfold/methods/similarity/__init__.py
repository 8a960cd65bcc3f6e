"""Kernel functions of all pairs of rows: what kernel_pca and nystroem share.

arguments   which kernel function, and its parameters
request     these, checked
in_range    what refuses similarities that are no numbers
blocks      rows of a matrix by blocks, as kernel functions take them
operator    the matrix of all pairs, times blocks of vectors: a sweep over pairs of blocks
features    products of rows with other rows' similarities: one pass, written row by row
place       new rows in a result of kernel_pca or nystroem
warm        compiled loops, run once
"""
