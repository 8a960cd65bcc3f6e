"""Combine two graphs, or one and labels of its rows.

combined     the task: combine two graphs, or one and labels
rules        rules for weights of an edge in two graphs, or between labels
row_scales   scales and exponents of the rows of a graph
targets      labels and numbers of rows
"""
