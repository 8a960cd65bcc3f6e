"""Similarity of rows by kernel functions, tile by tile: the matrix of all pairs is never stored.

functions   the kernel functions, rows prepared for them, and similarity of rows with themselves
tiles       similarities of a tile of rows and another, and their products with vectors     numba
"""
