"""scikit-learn's estimators over rankfold: the same parameters and attributes, for matrices of any size.

    principal_components   PCA; IncrementalPCA
    truncated              TruncatedSVD
    nonnegative            NMF; MiniBatchNMF
    neighbors              NearestNeighbors, KNeighborsTransformer
    search                 common parts of neighbor estimators; RadiusNeighborsTransformer
    clusters               KMeans, MiniBatchKMeans
    embeddings             UMAP, TSNE, SpectralEmbedding, DiffusionMap, Isomap
    kernels                KernelPCA, Nystroem, RBFSampler
    density                KernelDensity
    samples                distinguishes samples on disk, read some rows at a time, from those in memory
    labels                 samples with names that are not data frames
    docstrings             completes docstrings of the estimators with all arguments

A matrix that scikit-learn accepts (arrays, lists, data frames) is checked as scikit-learn checks it. The same
holds for AnnData objects and arrays of xarray in memory; their names are kept as those of a frame. All
else that ``rankfold.open`` accepts (paths, lists of paths, Zarr and Dask arrays) is never held in memory, and
its outputs are Zarr arrays, read when they are sliced.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("rankfold's estimators need scikit-learn: pip install scikit-learn") from error

from rankfold.estimators.clusters import KMeans, MiniBatchKMeans
from rankfold.estimators.density import KernelDensity
from rankfold.estimators.docstrings import explain
from rankfold.estimators.embeddings.eigenmaps import DiffusionMap, SpectralEmbedding
from rankfold.estimators.embeddings.isomap import Isomap
from rankfold.estimators.embeddings.tsne import TSNE
from rankfold.estimators.embeddings.umap import UMAP
from rankfold.estimators.kernels.fourier import RBFSampler
from rankfold.estimators.kernels.kernel_pca import KernelPCA
from rankfold.estimators.kernels.nystroem import Nystroem
from rankfold.estimators.neighbors import KNeighborsTransformer, NearestNeighbors
from rankfold.estimators.nonnegative import NMF, MiniBatchNMF
from rankfold.estimators.principal_components import PCA, IncrementalPCA
from rankfold.estimators.search import RadiusNeighborsTransformer
from rankfold.estimators.truncated import TruncatedSVD

__all__ = [
    "NMF",
    "PCA",
    "TSNE",
    "UMAP",
    "DiffusionMap",
    "IncrementalPCA",
    "Isomap",
    "KMeans",
    "KNeighborsTransformer",
    "KernelDensity",
    "KernelPCA",
    "MiniBatchKMeans",
    "MiniBatchNMF",
    "NearestNeighbors",
    "Nystroem",
    "RBFSampler",
    "RadiusNeighborsTransformer",
    "SpectralEmbedding",
    "TruncatedSVD",
]

explain({name: globals()[name] for name in __all__})


def __dir__() -> list[str]:
    return __all__
