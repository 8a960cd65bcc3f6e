"""Graphs of neighbors: weights of edges, and paths and walks along them.

fuzzy        membership strengths of rows in each other's neighborhoods, as in UMAP
perplexity   affinities of rows to their neighbors, as in t-SNE
paths        shortest paths, and breadth-first order
walk         steps of random walks, and components
"""
