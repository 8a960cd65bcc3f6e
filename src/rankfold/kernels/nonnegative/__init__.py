"""Least squares and divergences over rows that are not negative.

nnls                 nonnegative least squares, by descent and by pivoting      numba
multiplicative       nonnegative least squares, by multiplicative updates       numba
admm                 least squares on a box or a simplex                        numba
projected_gradient   the projected gradient, summed by component                numba
weighted_rows        least squares of rows that have weights of their own        numba
kl_divergence        data over model, and their Kullback-Leibler divergence     numba
"""
