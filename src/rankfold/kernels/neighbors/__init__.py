"""Nearest rows: bounds from products, exact distances, lists, ranks.

lists   nearest rows of tiles, kept in lists             numba
ranks   how many rows are nearer than given ones         numba
"""
