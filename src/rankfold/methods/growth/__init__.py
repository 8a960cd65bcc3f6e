"""Growing results: an earlier result is continued with rows that were appended to its matrix.

growth      decides whether to continue an earlier result, to begin anew, or to refuse
components  svd and pca: an update of the components
lists       neighbors: new rows are compared with all
clusters    kmeans: new rows take the nearest center, and centers are updated
factors     nmf: new rows against H, then H against all rows by sums that are kept
join_rows   the fold that writes rows of an earlier result, then new ones; the rows after those of an
            earlier result
"""
