"""Pictures of results, of any number of rows, in memory that does not grow with them.

kinds        kinds of plots, which of them a result has, and a figure with one plot
scatter      rows by two or three coordinates, as markers or as density
loadings     components by columns
patterns     maps and series together: a field over time
maps         components over the two axes of the columns; degrees and coastlines
series       components over time
bars         sizes of clusters, degrees of a graph, rows along one coordinate
curves       falling curves: singular values, inertia
density      points counted on a grid
coordinates  coordinates to draw, read by blocks
row_colors   labels or values of rows; colors of labels
row_columns  columns of arrays, tables and files that these are read from
canvas       figures without global state, light and dark; figures as files
"""
