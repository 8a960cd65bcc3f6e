"""Rows in few dimensions, as far apart as paths along the graph of their neighbors are long.

arguments   types, defaults and limits of the arguments
request     parameters of an embedding, checked
graph       lists of neighbors as a graph in memory, vertices in an order that walks along it
bridges     edges between components, where they are asked for
landmarks   which rows paths begin at
geodesics   shortest paths from these to all rows, a group after the other
scaling     from distances of landmarks to coordinates, and what these leave out
isomap      the task, and its plan
place       new rows among those of an embedding
warm        compiled loops, run once
"""
