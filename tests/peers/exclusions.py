"""Every test of a peer that is left out, and why.

A test is left out for what it asks that rankfold does otherwise on purpose, never because of a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Tests of a suite that are left out for one reason."""

    suite: str
    reason: str
    patterns: tuple[str, ...]
    """Of what follows the file in a node id; a ``?`` stands for each bracket."""

    def holds(self, suite: str, test: str) -> bool:
        """Whether a test is one of these."""
        return suite == self.suite and any(fnmatchcase(test, pattern) for pattern in self.patterns)


LEFT_TO_SCIKIT_LEARN = (
    "braycurtis",
    "canberra",
    "correlation",
    "dice",
    "haversine",
    "mahalanobis",
    "nan_euclidean",
    "precomputed",
    "rogerstanimoto",
    "russellrao",
    "seuclidean",
    "sokalsneath",
    "yule",
    "DM_euclidean",
)
"""Metrics that rankfold does not know."""

EXCLUSIONS = (
    Exclusion(
        "scikit-learn TSNE",
        "looks for what scikit-learn prints",
        ("test_verbose", "test_n_iter_without_progress", "test_accessible_kl_divergence"),
    ),
    Exclusion(
        "scikit-learn TSNE",
        "begins at coordinates as they are, which rankfold scales to 1e-4 and brings a little apart",
        ("test_init_ndarray", "test_uniform_grid?*"),
    ),
    Exclusion(
        "scikit-learn TSNE",
        "must refuse what rankfold takes: four dimensions, sparse distances",
        ("test_n_components_range", "test_exact_no_precomputed_sparse?*"),
    ),
    Exclusion(
        "scikit-learn TSNE",
        "metrics that rankfold does not know, from functions too",
        ("test_tsne_with_mahalanobis_distance", "test_non_positive_computed_distances"),
    ),
    Exclusion(
        "scikit-learn TSNE",
        "wants the same numbers by distances of another rounding",
        ("test_tsne_with_different_distance_metrics?*cosine*",),
    ),
    Exclusion(
        "scikit-learn TSNE",
        "n_iter_ is the number of steps, in scikit-learn that of the last, counted from 0",
        ("test_max_iter_used",),
    ),
    Exclusion(
        "scikit-learn TSNE",
        "must refuse too few sparse distances in scikit-learn's words; rankfold refuses them in its own",
        ("test_high_perplexity_precomputed_sparse_distances?*",),
    ),
    Exclusion(
        "dask",
        "must raise for chunks that rankfold reads: a grid, or pieces of the shorter side",
        (
            "test_tsqr?*-ValueError?",
            "test_sfqr?*-ValueError?",
            "test_qr?*-NotImplementedError?",
            "test_svd_incompatible_chunking",
        ),
    ),
    Exclusion("dask", "calls svd_flip alone, which is not replaced", ("test_svd_flip_sign?*",)),
    Exclusion(
        "scikit-learn PCA",
        'must refuse sparse matrices with svd_solver="full" or "randomized", which rankfold takes',
        ("test_sparse_pca_solver_error?*",),
    ),
    Exclusion(
        "scikit-learn PCA",
        "scores by a density that three samples in a hundred dimensions do not have: scikit-learn inverts "
        "what is singular up to rounding, and says -inf by one solver, 1602 by another; rankfold refuses",
        (
            "test_pca_zero_noise_variance_edge_cases?full?",
            "test_pca_zero_noise_variance_edge_cases?randomized?",
        ),
    ),
    Exclusion(
        "scikit-learn PCA",
        "reads the private attribute _fit_svd_solver",
        ("test_pca_svd_solver_auto?*",),
    ),
    Exclusion(
        "scikit-learn IncrementalPCA",
        "must refuse another n_components between batches, which rankfold takes",
        ("test_incremental_pca_set_params",),
    ),
    Exclusion(
        "scikit-learn IncrementalPCA",
        "must refuse too many components in scikit-learn's words; rankfold refuses them in its own",
        ("test_incremental_pca_validation",),
    ),
    Exclusion(
        "scikit-learn randomized_svd",
        "calls svd_flip alone, which is not replaced",
        ("test_svd_flip", "test_svd_flip_max_abs_cols?*"),
    ),
    Exclusion(
        "scikit-learn randomized_svd",
        "the matrix is cast to integers, all zero, and must have the vectors that LAPACK makes up for it",
        ("test_randomized_svd_low_rank_all_dtypes?int*",),
    ),
    Exclusion(
        "scikit-learn randomized_svd",
        "power iterations without normalization must diverge; rankfold always normalizes",
        ("test_randomized_svd_power_iteration_normalizer",),
    ),
    Exclusion(
        "scikit-learn randomized_svd",
        "must warn that LIL and DOK are slow; rankfold converts them once",
        ("test_randomized_svd_sparse_warnings?*",),
    ),
    Exclusion(
        "scikit-learn SpectralEmbedding",
        "calls functions of scikit-learn alone, which are not replaced",
        ("test_sparse_graph_connected_component?*", "test_connectivity"),
    ),
    Exclusion(
        "scikit-learn SpectralEmbedding",
        "wants eigenvectors of a Laplacian that is not normalized, which rankfold has not",
        ("test_spectral_embedding_unnormalized", "test_spectral_embedding_first_eigen_vector"),
    ),
    Exclusion(
        "scikit-learn SpectralEmbedding",
        "asks which solver of SciPy or pyamg is called; rankfold has its own",
        ("test_spectral_eigen_tol_auto?*", "test_error_pyamg_not_available"),
    ),
    Exclusion(
        "scikit-learn SpectralEmbedding",
        "gives distances that are to be cut to fewer neighbors, which rankfold asks of knn",
        ("test_precomputed_nearest_neighbors_filtering",),
    ),
    Exclusion(
        "scikit-learn KernelPCA",
        "wants an error where a solver takes eigenvalues by their magnitudes; rankfold takes the largest",
        ("test_precomputed_kernel_not_psd?randomized?",),
    ),
    Exclusion(
        "scanpy",
        "compares scores and components in float32, of which each is known to 1.2e-7, to 1e-7",
        ("test_pca_chunked",),
    ),
    Exclusion(
        "scipy svds",
        'which="SM": rankfold has no smallest singular values',
        (
            "*::test_svds_int_A?SM?",
            "*::test_svds_diff0_docstring_example",
            "*::test_svds_parameter_k_which?SM*",
            "*::test_svd_linop",
            "*::test_small_sigma_sparse?*",
            "*::test_small_sigma2?*",
        ),
    ),
    Exclusion(
        "scipy svds",
        "v0, ncv: rankfold starts with a block of its own, as wide as it chooses",
        ("*::test_svds_input_validation_v0_*", "*::test_svd_v0", "*::test_svds_input_validation_ncv_*"),
    ),
    Exclusion(
        "scipy svds",
        "maxiter: where passes run out, rankfold warns and gives what it has, with its error",
        ("*::test_svds_input_validation_maxiter_*", "*::test_svd_maxiter"),
    ),
    Exclusion(
        "scipy svds",
        "tol=1e-4 must give 1e-12, as that solver does; rankfold stops when it has what was asked for",
        ("*::test_svds_parameter_tol",),
    ),
    Exclusion(
        "scipy svds",
        "must refuse all singular values at once; rankfold gives them, as PROPACK does",
        (
            "Test_SVDS_ARPACK::test_svds_input_validation_k_1?3?",
            "Test_SVDS_LOBPCG::test_svds_input_validation_k_1?3?",
        ),
    ),
    Exclusion(
        "scipy svds",
        "must fail with Python's own words where k or tol is not a number",
        ("*::test_svds_input_validation_k_2", "*::test_svds_input_validation_tol_2?*"),
    ),
    Exclusion(
        "scipy svds",
        "must refuse a string, which is a path to rankfold",
        ("*::test_svds_input_validation_A?args2?",),
    ),
    Exclusion(
        "scipy svds",
        "must warn that LOBPCG is not for small matrices; the other solvers have the same tests without that",
        (
            "Test_SVDS_LOBPCG::test_svds_int_A?LM?",
            "Test_SVDS_LOBPCG::test_svds_parameter_k_which?LM*",
            "Test_SVDS_LOBPCG::test_svd_return_singular_vectors?*",
            "Test_SVDS_LOBPCG::test_svd_simple?*",
            "Test_SVDS_LOBPCG::test_svd_LM_ones_matrix?*",
            "Test_SVDS_LOBPCG::test_zero_matrix?*",
        ),
    ),
    Exclusion(
        "scikit-learn NMF",
        "must need more than one iteration for a matrix of ones, which ours has solved before its first",
        ("test_convergence_warning?NMF-solver?*",),
    ),
    Exclusion(
        "scikit-learn NMF",
        "calls functions of scikit-learn alone, which are not replaced, or wants their iterates",
        (
            "test_non_negative_factorization*",
            "test_initialize_*",
            "test_beta_divergence?*",
            "test_special_sparse_dot?*",
            "test_nmf_multiplicative_update_sparse?*",
            "test_nmf_decreasing?*",
            "test_nmf_n_components_auto_no_h_update",
            "test_nmf_non_negative_factorization_n_components_auto",
            "test_nmf_w_h_not_used_warning",
            "test_nmf_negative_beta_loss?*",
        ),
    ),
    Exclusion(
        "scikit-learn NMF",
        "must have the iterates of NMF from MiniBatchNMF: ours solves rows of a batch exactly",
        ("test_nmf_minibatchnmf_equivalence?*",),
    ),
    Exclusion(
        "scikit-learn NMF",
        "compares to 1e-7 what rounding decides: how rows are split between components that coincide, or "
        "numbers that a penalty brings to nothing",
        (
            "test_nmf_sparse_input?1.0-0.0-cs*-NMF-solver1?",
            "test_nmf_sparse_input?1.0-1.0-cs*-MiniBatchNMF-solver2?",
            "test_nmf_sparse_input?same-1.0-cs*-MiniBatchNMF-solver2?",
        ),
    ),
    Exclusion(
        "scikit-learn neighbors",
        "compares distances of rows to themselves, exactly 0 here, with those that scikit-learn makes from "
        "products: on some processors these round to 1.5e-8, and no absolute error is allowed",
        ("test_unsupervised_inputs?*",),
    ),
    Exclusion(
        "scikit-learn neighbors",
        "of equal rows must take the one that its own sort leaves first; ours is the one of lowest number",
        ("test_k_and_radius_neighbors_duplicates?*",),
    ),
    Exclusion(
        "scikit-learn neighbors",
        "reads the private attribute _fit_method alone, to see which tree was chosen",
        ("test_auto_algorithm?*",),
    ),
    Exclusion(
        "scikit-learn neighbors",
        "a metric that our estimator leaves to scikit-learn, which would test itself",
        (
            *(f"*-{metric}?" for metric in LEFT_TO_SCIKIT_LEARN),
            "*-DM_euclidean-*",
            "test_sparse_metric_callable?*",
            "test_nan_euclidean_support?*",
            "test_nearest_neighbors_works_with_p_less_than_1",
        ),
    ),
    Exclusion(
        "pynndescent",
        "calls functions, or the transformer, of pynndescent alone, which are not replaced",
        (
            "test_int8_quantized_distance_*",
            "test_int8_quantized_distances_*",
            "test_graph_update_ids_survive_float32_buffers",
            "test_transformer_output_when_verbose_is_*",
            "test_transformer_pickle_unpickle",
        ),
    ),
    Exclusion(
        "pynndescent",
        "must find what the transformer of pynndescent, which is not replaced, finds by approximation",
        ("test_transformer_equivalence",),
    ),
    Exclusion(
        "pynndescent",
        "reads attributes of its index: trees, workspaces, which of its searches was compiled",
        (
            "test_sparse_search_tree_hyperplanes_are_ragged?*",
            "test_dense_query_workspace_reuses_buffers_without_mutating_results",
            "test_cosine_uses_normalized_dot_product",
            "test_padded_sparse_search_tree_from_older_pickles",
            "test_init_forest_respects_n_jobs_and_is_used_by_update",
            "test_tree_numbers_after_multiple_updates?*",
            "test_cached_search_matches_closure?*",
            "test_prepare_compile_search_option",
        ),
    ),
    Exclusion(
        "pynndescent",
        "options of its index that must be refused, warned of, or printed; an exact search has none",
        (
            "test_direct_cosine_and_indices_only_query",
            "test_n_search_trees_is_deprecated",
            "test_int8_quantized_query_and_width_controls",
            "test_output_when_verbose_is_true",
        ),
    ),
    Exclusion(
        "pynndescent",
        "bits packed into integers: rankfold's metrics, and functions, are of rows of numbers",
        ("test_bitpacked_*",),
    ),
    Exclusion(
        "pynndescent",
        "haversine, a function that raises for rows of any but two columns: rankfold tries four first",
        ("test_haversine_antipodal_neighbor_graph",),
    ),
)


def why_excluded(suite: str, node: str) -> str | None:
    """The first reason to leave out a test, by its node id."""
    test = node.partition("::")[2]
    return next((each.reason for each in EXCLUSIONS if each.holds(suite, test)), None)
