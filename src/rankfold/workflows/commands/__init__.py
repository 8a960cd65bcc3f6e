"""What each command does between its options and the library.

reduce        svd, pca and their plan
project       transform and reconstruct
convert       import and info
flow          run, status, schema and example: workflows from a file
show          demo
submit        any of them as one job of SLURM
"""
