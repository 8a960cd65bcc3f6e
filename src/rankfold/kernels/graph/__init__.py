"""Graphs of neighbors: what edges weigh, and paths and walks along them.

fuzzy        how strongly each row belongs to the neighborhood of another
perplexity   how strongly each row is drawn to its neighbors, as t-SNE has it
paths        shortest paths, and an order by breadth
walk         steps of random walks, and components
"""
