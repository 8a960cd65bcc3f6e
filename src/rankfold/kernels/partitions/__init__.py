"""Partitions of rows.

visits     partitions that neighbors of a row are in        numba
"""
