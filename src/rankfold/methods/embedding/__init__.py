"""What embeddings share: where rows begin, the search before, how well neighborhoods are kept.

arguments         types, defaults and limits of the arguments, names of where rows begin
quality_request   parameters of a measure, checked
quality_plan      how many rows are held at once
trustworthiness   from ranks of neighbors to a measure, after a search for them
measured          an embedding that is measured when it is made
components        principal components of a matrix that rows begin at
searched          what is made of neighbors, of a matrix whose neighbors are found first
preservation      what two searches for neighbors have in common
neighbor_ranks    how many rows are nearer than given ones, and where those are
warm              compiled loops, run once
"""
