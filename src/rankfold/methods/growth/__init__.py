"""Results that go on with rows that have come since.

growth      an earlier result and a matrix that has gained rows: go on, begin anew, or refuse
rows        the rows behind those of an earlier result
components  of svd and pca: an update
lists       of neighbors: new rows meet all
clusters    of kmeans: new rows take the nearest center, and centers follow
factors     of nmf: new rows against H, then H against all rows by sums that are kept
join_rows   the fold that puts rows of an earlier result before new ones
"""
