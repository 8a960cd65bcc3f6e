"""Growing results: an earlier result is continued with rows that were appended to its matrix.

growth      decides whether to continue an earlier result, to begin anew, or to refuse
components  svd and pca: an update of the components
lists       neighbors: new rows are compared with all rows
clusters    kmeans: new rows take the nearest center, and centers are updated
factors     nmf: W of new rows is solved against H, then H against all rows by sums that results keep
join_rows   fold that writes the rows of an earlier result followed by new ones; the matrix of new rows
"""
