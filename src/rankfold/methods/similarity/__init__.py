"""Kernel functions of all pairs of rows: shared by kernel_pca and nystroem.

arguments   arguments of a kernel function
request     these, checked
in_range    raises for similarities that are NaN or infinite
blocks      rows of a matrix in blocks, prepared for kernel functions
operator    the matrix of all pairs, times blocks of vectors: a sweep over pairs of blocks
features    rows by their similarities to some points: one pass, written row by row
place       new rows in a result of kernel_pca or nystroem
warm        compiles loops by running each once
"""
