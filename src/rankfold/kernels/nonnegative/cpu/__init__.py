"""Bodies that numba compiles."""
