"""rankfold for Spack: a repository of your own takes it as ``packages/py_rankfold/package.py``."""

# ruff: noqa: F403, F405
# All recipes of Spack are written in the words that this brings.
from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyRankfold(PythonPackage):
    """Low-rank structure of matrices larger than memory: SVD and PCA in bounded memory and few passes."""

    pypi = "rankfold/rankfold-0.2.0.tar.gz"

    license("Apache-2.0", checked_by="rankfold")

    # A release is installed from its sdist: put its sha256 here. Until then: spack dev-build, in the sources.
    version("0.2.0")

    variant("formats", default=False, description="Read HDF5 and Parquet")
    variant("xarray", default=False, description="Read what xarray opens")
    variant("estimators", default=False, description="Faces of scikit-learn")

    depends_on("python@3.11:3.13", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")

    with default_args(type=("build", "run")):
        depends_on("py-zarr@3.1.6:3")
        depends_on("py-numcodecs@0.16.6:")
        depends_on("py-google-crc32c@1.5:")
        depends_on("py-dask@2026.7.1:2026")
        depends_on("py-distributed@2026.7.1:2026")
        depends_on("py-dask-jobqueue@0.9")
        depends_on("py-pydantic@2.10:2")
        depends_on("py-pyyaml@6.0.2:")
        depends_on("py-numpy@2.2:2")
        depends_on("py-scipy@1.15:1")
        depends_on("py-numba@0.61:")
        depends_on("py-threadpoolctl@3.6:")
        depends_on("py-typer@0.16:")
        depends_on("py-rich@13.9:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-matplotlib@3.10:")

        depends_on("py-h5py@3.12:", when="+formats")
        depends_on("py-pyarrow@18:", when="+formats")
        depends_on("py-xarray@2025.3:", when="+xarray")
        depends_on("py-netcdf4@1.7:", when="+xarray")
        depends_on("py-scikit-learn@1.6:", when="+estimators")
