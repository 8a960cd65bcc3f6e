"""Pictures of results, of any number of rows, in memory that does not grow with them.

kinds        which plots a result has, and the figure of one
scatter      rows by two or three coordinates, as markers or as density
loadings     components by columns
patterns     the two below together: a field over time
maps         components over the two axes of the columns
series       components over time
geography    degrees and coastlines
bars         sizes of clusters, degrees of a graph, rows along one coordinate
curves       what falls from one to the next: singular values, inertia
density      points counted on a grid
coordinates  which coordinates, read by blocks
row_colors   labels or values of rows
palette      colors of labels
row_columns  where these are read from
canvas       figures without global state, light and dark
files        figures as files
"""
