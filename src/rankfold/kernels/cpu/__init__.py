"""Bodies tuned for NumPy arrays: numba and single-threaded BLAS. Names as in the contracts above."""
