"""A graph of two, or of one and labels of its rows.

combined     a graph of two, or of one and labels
rules        what weighs an edge of two graphs, or between labels
row_scales   what rows of a graph are scaled with
targets      labels and numbers of rows
"""
