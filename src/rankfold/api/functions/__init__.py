"""The public functions by kind: each checks its arguments, makes a task (checked call of a method) and runs
it.

reductions          svd, pca, qr, nmf
neighbors           knn, index, radius_neighbors, fuzzy_graph, combine_graphs
sums                kernel_sum, density
clusters            kmeans
embeddings          umap, tsne, isomap
eigenmaps           spectral, diffusion_map
kernels             kernel_pca, nystroem
embedding_quality   trustworthiness, continuity, neighborhood preservation
models              transform, update, check, reconstruct
"""
