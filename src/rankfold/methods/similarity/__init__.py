"""Kernel functions of all pairs of rows: shared by kernel_pca and nystroem.

arguments   arguments of a kernel function
request     the chosen kernel function and its parameters, checked
blocks      rows of a matrix in blocks, prepared for kernel functions; raises for similarities (values of
            the kernel function) that are NaN or infinite
operator    the kernel matrix of all pairs as a linear operator: a sweep over pairs of blocks of rows
features    features of rows from their similarities to some points, written in one pass
transform   new rows in a result that compares them with its points
"""
