"""Sums of kernels over all pairs of points, forces, and densities.

arguments    types, defaults and limits of the arguments
kernels      what callers name, as laws of distances
request      parameters of a sum, checked
points       sources in memory: read, weighed, arranged
work         sums at some targets, by whatever was chosen
accuracy     how wide nodes may look, from errors at sampled targets
sweeps       targets block by block, and what they take
summing      a sum, from a request to a result
kernel_sum   sums and forces: what is asked
density      densities of samples: what is asked
warm         compiled loops, run once
"""
