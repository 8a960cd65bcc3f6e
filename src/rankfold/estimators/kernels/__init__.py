"""Estimators by kernel functions of pairs of samples.

functions    the kernel function of an estimator: rankfold's, or scikit-learn's in memory
components   KernelPCA
landmarks    Nystroem
fourier      RBFSampler
"""
