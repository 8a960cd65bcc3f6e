"""One iteration in one read: the long factor is improved, and its products with the data accumulate.

frobenius    by least squares, over panels
divergence   under the Kullback-Leibler divergence, over panels
sparse       both of them over stored numbers alone
choice       which of them, by what a matrix is stored as
"""
