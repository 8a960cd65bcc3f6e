"""Neighbors as a graph of weights, as UMAP makes it.

arguments     types, defaults and limits of the arguments
lists         lists of neighbors as they are stored, some rows at a time
sides         what rows of an edge say of it, and what it weighs by both
fuzzy_graph   from lists to a symmetric graph
new_rows      neighbors of other rows, weighed
radii         how far neighbors are, on average
stored_rows   rows of a stored graph, some at a time
combination   a graph of two, or of one and labels
tasks         from what a caller says to a task
warm          compiled loops, run once
"""
