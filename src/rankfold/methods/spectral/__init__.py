"""Eigenvectors of random walks on a graph of neighbors: Laplacian eigenmaps and diffusion maps.

arguments    types, defaults and limits of the arguments
request      parameters, checked
walk         eigenvectors of the walk on a graph
coordinates  coordinates of rows from eigenvectors
memory       memory and passes that a plan counts
spectral     the tasks, and their plan
transform    new rows by Nystrom's formula
"""
