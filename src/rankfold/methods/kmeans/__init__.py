"""Clusters of rows around their means.

arguments    types, defaults and limits of the arguments
request      parameters of a clustering, checked; centers of the caller
layout       how the matrix is cut, and what lies on scratch
kept_rows    rows of the smallest keys, kept by a sweep
passes       the folds: rows that a start is made from, a step of Lloyd's, labels into the result
start        centers to begin with, from rows that one read has sampled
exchange     centers taken to where they are missed, out of a local minimum
batches      passes in which centers move after every few rows
iteration    steps until centers rest
kmeans       the task, and its plan
warm         compiled loops, run once
"""
