"""Estimators of embeddings.

embedding   their common base
layouts     UMAP
eigenmaps   SpectralEmbedding, DiffusionMap
isomap      Isomap
descents    TSNE
"""
