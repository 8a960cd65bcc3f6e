"""Bodies tuned for CuPy arrays. Names as in the contracts above; imported only for device arrays."""
