"""Clusters of rows around their means (k-means).

arguments    types, defaults and limits of the arguments
request      checked parameters of a clustering; centers from the caller
layout       cut of the matrix, and matrices on scratch
kept_rows    rows of the smallest keys, kept by a sweep
passes       the folds: sample rows for a start, one step of Lloyd's, write labels
start        starting centers, from rows sampled in one read
exchange     move centers to where they lower the cost, to leave a local minimum
batches      passes in which centers move after every few rows (mini-batches)
iteration    steps until centers converge
kmeans       the task, and its plan
warm         compiled loops, run once
"""
