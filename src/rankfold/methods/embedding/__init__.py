"""Shared by embeddings: initial positions, the search for neighbors, measures of kept neighborhoods.

arguments         types, defaults and limits of the arguments, names of initial positions
quality_request   parameters of a measure, checked
quality_plan      number of rows that are held at once
trustworthiness   from ranks of neighbors to a measure, after a search for them
measured          an embedding that is measured when it is made
components        principal components of a matrix, as initial positions
searched          a task on lists of neighbors, after a search for them in a matrix
preservation      share of neighbors that two searches have in common
neighbor_ranks    counts rows that are nearer than given ones
warm              compiles loops by running each once
"""
