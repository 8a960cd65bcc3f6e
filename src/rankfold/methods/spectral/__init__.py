"""Eigenvectors of random walks on a graph of neighbors: Laplacian eigenmaps and diffusion maps.

arguments    types, defaults and limits of the arguments; parameters, checked
walk         eigenvectors of the walk on a graph
coordinates  coordinates of rows from eigenvectors
spectral     the tasks, and their plan; memory and passes that a plan counts
transform    new rows by Nystrom's formula
"""
