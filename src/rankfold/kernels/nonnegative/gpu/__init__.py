"""Bodies for CUDA devices of the kernels of ``nonnegative``."""
