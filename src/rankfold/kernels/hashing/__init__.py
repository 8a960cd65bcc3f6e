"""Digests at the speed of memory.

digest   a digest of many words     numba
"""
