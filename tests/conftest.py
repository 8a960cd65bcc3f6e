"""One thread for every library, two hypothesis profiles, a reason for each test left out, shared fixtures."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    # Read once, when the library loads: nothing above this line may import numpy.
    os.environ[variable] = "1"

import functools  # noqa: E402
import signal  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

import pytest  # noqa: E402
import stand_in  # noqa: E402
from hypothesis import settings  # noqa: E402

if TYPE_CHECKING:
    from slurm_cluster import SlurmCluster

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts in the background that way, and programs under test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tiers", "leftovers", "lawful", "commands_once"]

# No deadline: a first call compiles. No database: the same examples on every machine.
# The other one is taken by --hypothesis-profile=full.
settings.register_profile("full", derandomize=True, deadline=None, database=None)
settings.register_profile("quick", settings.get_profile("full"), max_examples=20)
settings.load_profile("quick")


@functools.cache
def missing_device() -> str | None:
    """Why tests marked ``gpu`` cannot run here, in words a user would understand."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed; on a machine with an NVIDIA GPU: pip install 'cupy-cuda13x[ctk]>=14'"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy is installed but finds no NVIDIA GPU: {error}"
    return None if count else "CuPy is installed but finds no NVIDIA GPU"


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked ``gpu`` run on a device, and on a stand-in for CuPy where there is none."""
    if request.node.get_closest_marker("gpu") and missing_device():
        with stand_in.installed():
            yield
    else:
        yield


@pytest.fixture(autouse=True)
def _global_draws() -> None:
    """Estimators without ``random_state`` draw from NumPy's global state: the same in every run."""
    import numpy as np

    np.random.seed(0)  # noqa: NPY002


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The matrix of the demo: half a million image patches, 408 MB."""
    pytest.importorskip("sklearn", reason="the demo's photographs come with scikit-learn")
    from rankfold.workflows.demo import sample_photographs, write_patches

    store = tmp_path_factory.mktemp("demo") / "patches.zarr"
    write_patches(store, sample_photographs())
    return store


@pytest.fixture(scope="session")
def demo_bytes(demo_store: Path) -> str:
    """Digest of its components and scores as the threads of one process find them."""
    from reference import same_bytes

    import rankfold as rf

    return same_bytes(rf.pca(demo_store, rank=8, memory="256MiB", threads=2))


@pytest.fixture(scope="session")
def rows_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six thousand rows, twenty-four blocks of them where ``neighbor_driver.py`` cuts them."""
    import numpy as np
    from reference import to_zarr

    x = np.random.default_rng(0).standard_normal((6000, 32)).astype(np.float32)
    return Path(to_zarr(tmp_path_factory.mktemp("rows") / "x.zarr", x, (250, 32)))


@pytest.fixture(scope="session")
def neighbor_bytes(rows_store: Path) -> str:
    """Digest of their neighbors as the threads of one process find them."""
    from reference import same_bytes

    import rankfold as rf

    return same_bytes(rf.knn(rows_store, 6, symmetric="union", memory="256MiB", threads=2))


@pytest.fixture(scope="session")
def graph_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of the neighbors of four thousand rows; their lists lie beside it."""
    import numpy as np

    import rankfold as rf

    folder = tmp_path_factory.mktemp("layout")
    x = np.random.default_rng(0).standard_normal((4000, 6))
    lists = rf.knn(x, 10, out=folder / "lists.zarr", threads=2)
    return rf.fuzzy_graph(lists, out=folder / "graph.zarr").path


@pytest.fixture(scope="session")
def layout_bytes(graph_store: Path) -> str:
    """Digest of its layout as a thread of one process makes it in as many epochs as ``layout_driver.py``."""
    from layout_driver import EPOCHS
    from reference import same_bytes

    import rankfold as rf

    return same_bytes(rf.umap(graph_store, n_epochs=EPOCHS, threads=1))


@pytest.fixture(scope="session")
def slurm_daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A real SLURM; tests that want it are skipped where none can be started."""
    from slurm_cluster import SlurmCluster, missing_slurm

    if reason := missing_slurm():
        pytest.skip(reason)
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_daemons: SlurmCluster) -> Iterator[SlurmCluster]:
    """The same with an empty queue, before and after each test: one that fails leaves nothing to the next."""
    slurm_daemons.clear()
    yield slurm_daemons
    slurm_daemons.clear()
