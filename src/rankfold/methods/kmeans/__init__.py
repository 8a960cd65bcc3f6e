"""Clusters of rows around their means (k-means).

arguments    types, defaults and limits of the arguments
request      checked parameters of a clustering; centers from the caller
layout       cut of the rows into panels (rows read at a time), and intermediate files
kept_rows    rows with the smallest keys, kept during a pass: a random sample, or the farthest rows
passes       what passes do with each panel: sample rows for a start, a step of Lloyd's, write labels
start        starting centers, from rows sampled in one read
exchange     move centers to where they lower the cost, to leave a local minimum
batches      passes in which centers move after every few rows (mini-batches)
iteration    steps until centers converge
kmeans       the task, and its plan
"""
