"""Bodies for CuPy arrays."""
