"""Clusters of rows around their means (k-means).

arguments    types, defaults and limits of the arguments
request      checked parameters of a clustering; centers from the caller
passes       what passes do with each panel: sample rows for a start, a step of Lloyd's, write labels; cut
             of the rows into panels (rows read at a time), and intermediate files; rows with the smallest
             keys, kept during a pass: a random sample, or the farthest rows
start        starting centers, from rows sampled in one read
batches      passes in which centers move after every few rows (mini-batches)
iteration    steps until centers converge; move centers to where they lower the cost, to leave a local
             minimum
kmeans       the task, and its plan
"""
