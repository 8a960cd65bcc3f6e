"""Weighted graph of neighbors, as in UMAP.

arguments     types, defaults and limits of the arguments
lists         stored lists of neighbors, read a block of rows at a time
sides         weights of an edge from either row, and their combination
fuzzy_graph   the task: from lists to a symmetric graph
new_rows      weights of neighbors of new rows
radii         local radii of rows, from mean distances to neighbors
stored_rows   rows of a stored graph, read a block at a time
combination   combine two graphs, or one and labels
tasks         from arguments of a caller to a task
"""
