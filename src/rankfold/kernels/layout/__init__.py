"""Layouts of graphs: what moves vertices.

forces     attraction and repulsion by distance, and when an edge pulls
vertices   vertices that their own edges move               numba
descent    vertices that go down a gradient             numba
settling   rows that settle among vertices that stay   numba
rows       rows that find their places among vertices       numba
"""
