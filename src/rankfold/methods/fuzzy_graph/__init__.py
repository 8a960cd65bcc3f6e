"""Lists of neighbors as a graph of weights, by which embeddings place rows.

arguments     types, defaults and limits of the arguments
lists         lists of neighbors as they are stored, some rows at a time
fuzzy_graph   from lists to the graph
warm          compiled loops, run once
"""
