"""Neighbors as a graph of weights, as UMAP makes it.

arguments     types, defaults and limits of the arguments
lists         lists of neighbors as they are stored, some rows at a time
sides         what rows of an edge say of it, and what it weighs by both
fuzzy_graph   from lists to a symmetric graph
targets       labels and numbers of rows
stored_rows   rows of a stored graph, some at a time
rules         what weighs an edge of two graphs, or between labels
row_scales    what rows of a graph are scaled with
combined      a graph of two, or of one and labels
tasks         from what a caller says to a task
warm          compiled loops, run once
"""
