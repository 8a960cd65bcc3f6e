"""Similarity of rows by kernel functions, tile by tile: nothing of all pairs is ever written.

functions   which kernel functions there are, rows as these need them, and similarity of rows with themselves
tiles       similarities of a tile of rows and another, and their products with vectors     numba
"""
