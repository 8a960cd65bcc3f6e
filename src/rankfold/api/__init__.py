"""The public functions, and ``execute``, which joins a task and an executor.

reductions          svd, pca, qr, nmf
neighbors           knn, index, radius_neighbors, fuzzy_graph, combine_graphs
clusters            kmeans
embeddings          umap, spectral, diffusion_map, isomap
embedding_quality   trustworthiness, continuity, neighborhood preservation
models              transform, update, check, reconstruct
matrices            open, import_array
execute             plan, claim, run, publish: the same for every task
identity            in what a finished result differs from what is asked
call                plan; the functions of methods of other packages
where               arguments of where and how, which all functions take
arguments           what callers in Python say, checked before it means anything
"""
