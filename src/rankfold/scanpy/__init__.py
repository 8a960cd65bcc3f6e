"""``pp.pca`` and ``pp.neighbors`` with the arguments and keys of scanpy, computed by rankfold.

    import rankfold.scanpy as rsc
    rsc.pp.pca(adata, n_comps=50)
    rsc.pp.neighbors(adata, n_neighbors=15)

pp      components, and neighbors with their graph

Principal components are exact to rounding, neighbors are exact, and a backed object is read from its file, in
planned memory.
"""

from rankfold.scanpy import pp

__all__ = ["pp"]
