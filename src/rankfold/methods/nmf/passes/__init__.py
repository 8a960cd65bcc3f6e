"""One iteration in one read: it improves the long factor and sums its products with the data.

frobenius    by least squares, over panels
divergence   under the Kullback-Leibler divergence, over panels
sparse       both losses, over stored numbers alone
choice       chooses among these by loss and storage of the matrix
"""
