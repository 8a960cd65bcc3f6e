"""Shared by embeddings: initial positions, the search for neighbors, measures of kept neighborhoods.

arguments         types, defaults and limits of the arguments, names of initial positions
quality_request   parameters of a measure, checked
trustworthiness   trustworthiness and continuity, from ranks of neighbors; plan of a measure: passes,
                  memory, number of rows held in memory at once
quality_chain     an embedding that is measured when it is made
components        principal components of a matrix, as initial positions
start             initial positions: random, given, among neighbors, or by eigenvectors of the graph
moving_rows       base of tasks that move all rows in rounds, as those of UMAP and t-SNE
searched          a search for neighbors in a matrix, followed by a task on the lists found
preservation      share of neighbors that two searches have in common
neighbor_ranks    ranks of given neighbors, by counting the rows that are nearer
"""
