"""The leading singular triplets of a sparse or dense matrix in memory.

matrix       the matrix, read once: centered, scaled, and multiplied from either side
basis        an orthonormal basis that grows block by block, with thick restarts
lanczos      block Lanczos until the leading values have settled; search for copies of repeated values that
             one random block cannot see
triplets     from vectors of the shorter side to triplets, and the factor of the longer side
"""
