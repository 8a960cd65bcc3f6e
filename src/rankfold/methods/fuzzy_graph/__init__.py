"""Weighted graph of neighbors, as in UMAP.

arguments     types, defaults and limits of the arguments
lists         stored lists of neighbors, read a block of rows at a time
fuzzy_graph   the task: from lists to a symmetric graph; weights of an edge from either row, and their
              combination; local radii of rows, from mean distances to neighbors
new_rows      weights of neighbors of new rows
stored_rows   rows of a stored graph, read a block at a time
combination   combine two graphs, or one and labels
tasks         from arguments of a caller to a task
"""
