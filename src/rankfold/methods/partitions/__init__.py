"""Nearest neighbors within partitions of the rows, with a measured recall.

Each round puts rows into partitions around other centers, and compares all pairs of rows within each. Then
rows may visit partitions that hold their neighbors and not themselves: they are compared with all rows there.

layout      number and size of partitions, and the cuts of sweeps
files       files on scratch: rows by partition, lists by partition, lists by row
sample      rows that partitions and recall are made from, and the centers of partitions
assign      puts rows into partitions, and compares some of them with all others
meet_all    a few rows that are compared with all others
search      neighbors within each partition
refinement  rows are compared with further partitions that their neighbors are in
merge       merges lists of partitions into lists of rows
rounds      repeats the search with other partitions until the recall is reached; the share of true
            neighbors that were found, and its confidence interval
complete    rows that were compared with too few others
plan        its cost, compared with that of all pairs
"""
