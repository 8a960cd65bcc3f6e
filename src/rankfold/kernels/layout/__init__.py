"""Layouts of graphs: what moves vertices.

forces     attraction and repulsion by distance, and when an edge pulls
vertices   vertices that their own edges move               numba, CUDA C++
radii      how far neighbors of vertices are                numba, CUDA C++
rows       rows that find their places among vertices       numba, CUDA C++
descent    vertices that go down a gradient                 numba
settling   rows that settle among vertices that stay        numba
"""
