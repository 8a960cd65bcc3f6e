"""Layouts of graphs: kernels that move vertices.

forces     attraction and repulsion by distance, and when an edge pulls
vertices   vertices moved by their own edges                numba, CUDA C++
radii      local radii: distances of neighbors              numba, CUDA C++
rows       new rows placed among fixed vertices, as in UMAP numba, CUDA C++
descent    gradient descent of vertices                     numba
settling   new rows placed by gradient descent, as in t-SNE numba
"""
