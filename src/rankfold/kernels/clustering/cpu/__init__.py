"""Tuned bodies for the host.

nearest_centers   tiles of rows, and what is done with each
_open_rows        rows that bounds leave open
_products         products of the few pairs that are open
_labels           labels and bounds that follow from products
far_rows          one sum for each row
"""
