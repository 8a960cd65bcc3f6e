"""Graphs of neighbors: what edges weigh.

fuzzy   how strongly each row belongs to the neighborhood of another
"""
