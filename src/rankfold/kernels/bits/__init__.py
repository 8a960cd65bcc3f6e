"""Rows as sets: neighbors by how many members two of them share.

set_keys      distances of sets from their sizes and the number of members they share
bit_meeting   two blocks of rows of packed bits and their lists     numba
set_meeting   the same of sparse rows, as lists of their members    numba
"""
