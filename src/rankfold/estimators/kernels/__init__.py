"""Estimators by kernel functions of pairs of samples.

functions    the kernel function of an estimator: rankfold's, or scikit-learn's in memory
kernel_pca   KernelPCA
nystroem     Nystroem
fourier      RBFSampler
"""
