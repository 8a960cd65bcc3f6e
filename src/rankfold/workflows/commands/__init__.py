"""What each command does between its options and the library.

reduce        svd, pca and their plan
project       transform and reconstruct
convert       import and info
show          demo
"""
