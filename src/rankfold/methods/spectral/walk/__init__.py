"""Leading eigenvectors of a random walk on a stored graph.

blocks     rows of a stored graph, some of them in memory
vertices   degrees and components, from one read of the graph
steps      steps of a random walk, in any threads
pairs      Ritz pairs of the walk, and how far off they may be
filter     eigenvectors by filters of many steps
solve      eigenvectors that are known, and others by filters or, of few rows, by LAPACK
"""
