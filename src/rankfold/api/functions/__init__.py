"""The public functions by kind: each checks its arguments, makes a task and runs it.

reductions          svd, pca, qr, nmf
neighbors           knn, index, radius_neighbors, fuzzy_graph, combine_graphs
clusters            kmeans
embeddings          umap, tsne, spectral, diffusion_map, isomap
embedding_quality   trustworthiness, continuity, neighborhood preservation
models              transform, update, check, reconstruct
"""
