"""Leading eigenvectors of a random walk on a stored graph.

blocks     rows of a stored graph, block by block; steps of a random walk, in any threads
vertices   degrees and components, from one read of the graph
filter     eigenvectors by filters of many steps; Ritz pairs of the walk, and estimates of their errors
solve      eigenvectors that are known, and others by filters or, for few rows, by LAPACK
"""
