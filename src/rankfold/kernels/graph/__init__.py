"""Graphs of neighbors: what edges weigh, and walks along them.

fuzzy   how strongly each row belongs to the neighborhood of another
walk    steps of random walks, and components
"""
