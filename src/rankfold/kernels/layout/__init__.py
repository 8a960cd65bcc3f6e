"""Layouts of graphs: what moves vertices.

forces     attraction and repulsion by distance, and when an edge pulls
vertices   vertices that their own edges move               numba
radii      how far neighbors of vertices are               numba
rows       rows that find their places among vertices       numba
"""
