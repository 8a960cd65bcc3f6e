"""Nearest rows: bounds from products, exact distances, lists, ranks.

bounds           bounds of distances from products, and their rounding errors
lists            nearest rows of tiles, kept in lists             numba
meeting          two blocks of rows compared, into their lists    numba, CUDA C++
sparse_meeting   the same of sparse rows, without their zeros     numba
ranking          rows that come before thresholds of others       numba, CUDA C++
tree             points of few dimensions in a tree               numba
ranks            how many rows are nearer than given ones         numba
"""
