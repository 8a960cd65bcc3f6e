"""Graphs of neighbors: what edges weigh, and paths along them.

fuzzy   how strongly each row belongs to the neighborhood of another
paths   shortest paths, and components
"""
