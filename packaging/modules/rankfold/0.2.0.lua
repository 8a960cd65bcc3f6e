-- A module file for Lmod. Change `root`: the virtual environment that rankfold is installed in.
--
--   python3 -m venv /apps/rankfold/0.2.0 && /apps/rankfold/0.2.0/bin/pip install rankfold-0.2.0-py3-none-any.whl
--   module use .../packaging/modules && module load rankfold/0.2.0
local root = "/apps/rankfold/0.2.0"

help([[Low-rank structure of matrices larger than memory: rankfold --help]])
whatis("Name: rankfold")
whatis("Version: 0.2.0")
whatis("Description: SVD, PCA, NMF, neighbors and embeddings of matrices larger than memory")

prepend_path("PATH", pathJoin(root, "bin"))

-- One thread below each worker: parallelism is that of the workers.
setenv("OMP_NUM_THREADS", "1")
setenv("OPENBLAS_NUM_THREADS", "1")
setenv("MKL_NUM_THREADS", "1")

-- The environment cannot be written by those who use it: each keeps kernels of their own.
local cache = os.getenv("XDG_CACHE_HOME") or pathJoin(os.getenv("HOME") or "/tmp", ".cache")
setenv("NUMBA_CACHE_DIR", pathJoin(cache, "rankfold-0.2.0"))
