"""Tuned bodies for the host.

nearest_centers   loop over tiles of rows: products, labels, sums of clusters
_open_rows        rows whose nearest center the bounds leave open
_products         products of the open pairs of a row and a center, where these are few
_labels           labels and bounds that follow from products
far_rows          squared distance of each row from its own center
"""
