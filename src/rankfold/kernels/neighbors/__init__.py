"""Nearest rows: bounds from products, exact distances, lists, ranks.

A key is the number that neighbors are ordered by: the distance, or the negative inner product.

bounds           bounds of distances from products, and their rounding errors
lists            nearest rows of tiles, kept in neighbor lists    numba
meeting          two blocks of rows compared, lists of both       numba, CUDA C++
sparse_meeting   two blocks of sparse rows compared               numba
ranking          how many rows of a block come before given ones  numba, CUDA C++
tree             points of few dimensions in a tree               numba
ranks            ranks by counting, a tile of products at a time  numba
"""
