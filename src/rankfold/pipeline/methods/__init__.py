"""One method, one file.

start             provisional mean and unit, from a few rows
gram              one pass into a scatter matrix, and its eigenvectors
krylov            fused block Krylov, stopped by a free error estimate
subspace          fused subspace iteration, stopped likewise, with room for one block
sketch            a single pass into sketches, and what can be reconstructed from them
fused             the pass that they share, and the loop of passes
basis             blocks Q, Y = A Q and Z = A'Y
convergence       errors after each pass against the tolerance
rayleigh_ritz     singular triplets from such blocks, whoever made them
long_factor       the long factor as a recipe, formed from scratch
projection        new rows into the components of a result: transform
reconstruction    a matrix out of its factors: reconstruct
reduction         from a request to a result: svd and pca
"""
