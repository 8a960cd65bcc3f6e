"""Rows visit partitions that their neighbors are in and they are not: they are compared with all rows there.

place      writes visitors by partition
search     compares visitors with the rows of partitions
"""
