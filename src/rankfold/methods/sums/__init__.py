"""Sums of kernels over all pairs of points, forces, and densities.

arguments    types, defaults and limits of the arguments
kernels      named kernels as laws of distances
points       sources in memory: coordinates, weights and tree
work         sums at some targets, in the chosen way
accuracy     choice of how near a node of the tree is summed as a whole, from errors at sampled targets
summing      a sum, from a request to a result; the task of sums and forces; the task of densities of
             samples; sweeps over blocks of targets, and their memory; parameters of a sum, checked
"""
