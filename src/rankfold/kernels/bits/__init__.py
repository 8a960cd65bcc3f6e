"""Rows as sets: neighbors by how many members two of them share.

set_keys      distances of sets from their sizes and the number of members they share
bit_meeting   pairs of rows of packed bits, inserted into neighbor lists          numba
set_meeting   pairs of sparse rows (sets of columns), inserted into such lists    numba
"""
