"""Sums over all pairs of points: kernels and forces, exactly, and by a tree.

laws        what two points are to each other at a distance
pairs       sums over all sources, exactly
tree        points in a tree of nodes, in the order in which they are met
moments     sources of a node, as they are seen from afar
tree_sums   sums over a tree, near points one by one and far ones by their moments
nearest     the source that is nearest to each target
repulsion   what pushes the points of a layout by t-SNE apart
"""
