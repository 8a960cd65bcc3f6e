"""Embedding of rows in few dimensions that keeps lengths of paths along the graph of their neighbors.

arguments   types, defaults and limits of the arguments; parameters of an embedding, checked
graph       lists of neighbors as a graph in memory, vertices in an order that walks along it; edges between
            components, if they are to be joined
geodesics   shortest paths from these to all rows, one group of landmarks after the other; choice of the
            rows that paths begin at
scaling     from distances of landmarks to coordinates, and their error
isomap      the task, and its plan
transform   places new rows in an embedding
"""
