"""Eigenvectors of random walks on a graph of neighbors: Laplacian eigenmaps and diffusion maps.

arguments    types, defaults and limits of the arguments
request      parameters, checked
blocks       rows of a stored graph, some of them in memory
vertices     degrees and components, from one read of the graph
walk         steps of a random walk, in any threads
pairs        Ritz pairs of the walk, and how far off they may be
filter       eigenvectors by filters of many steps
coordinates  from eigenvectors to coordinates of rows
solve        eigenvectors that are known, and others by filters or, of few rows, by LAPACK
memory       what a plan counts
spectral     the tasks, and their plan
warm         compiled loops, run once
"""
