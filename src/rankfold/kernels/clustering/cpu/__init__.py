"""Tuned bodies for the host.

nearest_centers   products of tiles, or of the few pairs that bounds leave open
far_rows          one sum for each row
"""
