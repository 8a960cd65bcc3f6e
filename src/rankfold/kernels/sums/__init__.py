"""Sums over all pairs of points: kernels and forces, exactly, and by a tree.

Sources are points with weights, over which sums run; targets are points at which sums are computed. A group
is up to ``pairs.GROUP`` targets, whose sums are computed at once.

laws        interactions of two points, as functions of their distance
pairs       sums over all sources, exactly
tree        points in a tree of nodes, in the order of a walk through it
moments     moments of the sources of a node, which stand for them from afar
tree_sums   sums over a tree, near points one by one and far ones by their moments
nearest     the source that is nearest to each target
repulsion   forces that push the points of a layout by t-SNE apart
"""
