"""One method, one file.

start             provisional mean and unit, from a few rows
gram              one pass into a scatter matrix, and its eigenvectors
krylov            fused block Krylov, stopped by a free error estimate
rayleigh_ritz     singular triplets from blocks Q, Y = A Q and Z = A'Y, whoever made them
projection        new rows into the components of a result: transform
reconstruction    a matrix out of its factors: reconstruct
reduction         from a request to a result: svd and pca
"""
