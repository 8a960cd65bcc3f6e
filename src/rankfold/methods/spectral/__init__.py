"""Eigenvectors of random walks on a graph of neighbors: Laplacian eigenmaps and diffusion maps.

arguments    types, defaults and limits of the arguments
request      parameters, checked
blocks       rows of a stored graph, some of them in memory
vertices     degrees and components, from one read of the graph
walk         steps of a random walk, in any threads
pairs        Ritz pairs of the walk, and how far off they may be
filter       eigenvectors by filters of many steps
dense        eigenvectors of graphs that are small, or of which most are wanted
coordinates  from eigenvectors to coordinates of rows
spectral     the tasks, and their plan
warm         compiled loops, run once
"""
