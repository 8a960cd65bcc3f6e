"""Sums over all pairs of points, by a regular grid of nodes or pair by pair.

nodes    charges of points spread to nodes, and potentials of nodes at points   numba
pairs    repulsion of points as sums over all pairs, without a grid             numba
"""
