"""Rows and the centers that they are nearest to.

nearest_centers   labels of rows, bounds that save distances in later steps, and sums of clusters
far_rows          distances of rows from their own centers
"""
