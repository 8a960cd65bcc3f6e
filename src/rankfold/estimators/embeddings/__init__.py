"""Estimators of embeddings.

embedding   what they share
layouts     UMAP
eigenmaps   SpectralEmbedding, DiffusionMap
isomap      Isomap
descents    TSNE
"""
