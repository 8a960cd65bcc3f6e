"""What each command does between its options and the library.

reduce        svd, pca and their plan
project       transform
convert       import and info
show          demo
"""
