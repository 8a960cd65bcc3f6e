"""One method, one file.

start             provisional mean and unit, and the first block, from a few rows
start_block       that block: random, or leading vectors of the rows looked at
missing           what such a block does not hold, from a sketch of all rows
gram              one pass into a scatter matrix, and its eigenvectors
krylov            fused block Krylov, stopped by a free error estimate
capture           block Krylov, until it holds all but a share of the matrix
subspace          fused subspace iteration, stopped likewise, with room for one block
tsqr              R by one pass over the matrix itself, and Q as a recipe
qr                QR factorisation
sketch            a single pass into sketches, and what can be reconstructed from them
nonnegative       nonnegative factors: on a compressed copy, then on the matrix
neighbours        nearest neighbours, exactly
neighbour_graph   their lists as the graph of a sparse matrix
fused             the pass that they share, and the loop of passes
basis             blocks Q, Y = A Q and Z = A'Y
convergence       errors after each pass against the tolerance
rayleigh_ritz     singular triplets from such blocks, whoever made them
long_factor       the long factor as a recipe, formed from scratch
projection        new rows into the components of a result: transform
update            components of more samples
faithfulness      how well an embedding keeps neighbourhoods
verification      residuals of a result against its matrix: check
reconstruction    a matrix out of its factors: reconstruct
outcome           what a method found, written as a result
reduction         from a request to a result: svd and pca
"""
