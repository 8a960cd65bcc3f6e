"""Rows visit partitions that their neighbors are in and they are not.

place      visitors, by partition
search     visitors meet the rows of partitions
"""
