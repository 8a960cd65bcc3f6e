"""Nearest neighbors within partitions of the rows, and how many of the true ones were among them.

layout      how many partitions, how large, and how sweeps are cut
files       what lies on scratch: rows by partition, lists by partition, lists by row
sample      rows that partitions and recall are made from, and the centers of partitions
assign      rows into partitions, while some of them meet all others
meet_all    a few rows that meet all others
search      neighbors within each partition
visits      rows visit partitions that their neighbors are in, a folder
merge       lists of partitions into lists of rows
recall      the share of true neighbors, and its interval
rounds      partitions after partitions, until the recall is reached
complete    rows that have met too few others
plan        what it costs, beside what all pairs cost
warm        compiled loops, run once
"""
