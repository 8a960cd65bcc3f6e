"""Estimators of embeddings.

embedding   their common base
umap        UMAP
eigenmaps   SpectralEmbedding, DiffusionMap
isomap      Isomap
tsne        TSNE
"""
