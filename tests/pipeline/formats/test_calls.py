"""Calls of VCF Zarr: counts of alleles by sample, from every container that names their axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from stores import read

import rankfold as rf
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source

xarray = pytest.importorskip("xarray", reason="pip install xarray")

VARIANTS, SAMPLES = 60, 25


def calls() -> Any:
    """Two alleles of each call, -1 where missing, -2 where there is no copy."""
    random = np.random.default_rng(0)
    x = random.binomial(1, random.uniform(0.2, 0.8, (VARIANTS, 1, 1)), (VARIANTS, SAMPLES, 2)).astype("i1")
    x[random.random((VARIANTS, SAMPLES)) < 0.05] = -1
    x[0, :6] = [[0, -1], [1, -1], [1, -2], [-2, -2], [2, 1], [0, 0]]
    return x


def dataset() -> Any:
    names = ["." if i % 9 == 0 else f"rs{i}" for i in range(VARIANTS)]
    return xarray.Dataset(
        {
            "call_genotype": (("variants", "samples", "ploidy"), calls()),
            "sample_id": ("samples", np.array([f"S{i}" for i in range(SAMPLES)])),
            "variant_id": ("variants", np.array(names)),
            "variant_contig": ("variants", np.ones(VARIANTS, "i1")),
            "variant_position": ("variants", np.arange(VARIANTS) + 5),
            "variant_allele": (("variants", "alleles"), np.array([["A", "CT", ""]] * VARIANTS)),
            "contig_id": ("contigs", np.array(["1", "X"])),
        }
    )


@pytest.mark.parametrize("guise", ["zarr 2", "zarr 3", "netCDF", "xarray", "xarray of dask"])
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_calls_are_counted_by_sample(tmp_path: Path, guise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, x = dataset(), calls()
    monkeypatch.setattr("rankfold.pipeline.data.allele_counts.REQUEST_BYTES", 64)
    place: Any = data["call_genotype"]
    if guise.startswith("zarr"):
        data.chunk(variants=7, samples=10).to_zarr(
            tmp_path / "x.vcz", zarr_format=int(guise[-1]), consolidated=False
        )
        place = f"{tmp_path / 'x.vcz'}::call_genotype"
    elif guise == "netCDF":
        data.to_netcdf(tmp_path / "x.nc")
        place = f"{tmp_path / 'x.nc'}::call_genotype"
    elif guise == "xarray of dask":
        place = place.chunk(variants=7)
    expected = (x > 0).sum(axis=2).astype("f4").T
    expected[(x == -1).any(axis=2).T] = np.nan
    expected[:6, 0] = [np.nan, np.nan, 1, np.nan, 2, 0]
    source = open_source(place)
    assert source.shape == (SAMPLES, VARIANTS)
    assert_array_equal(read(source, (0, SAMPLES), (0, VARIANTS)), expected)
    assert_array_equal(read(source, (3, 22), (5, 58), apart=2), expected[3:22, 5:58])
    assert_array_equal(open_source(place, row_axes="variants")[...], expected.T)
    assert_array_equal(open_source(place, row_axes="samples,ploidy")[4:6], x[:, 2].T)
    result, other = (rf.pca(each, 2, prepare="patterson") for each in (place, expected))
    assert_array_equal(result.singular_values, other.singular_values)
    assert_array_equal(rf.transform(result, place).scores, rf.transform(other, expected).scores)
    if guise.startswith("zarr"):
        samples, variants = (names_of(source, axis) for axis in (0, 1))
        assert samples is not None and samples.labels is not None and samples.labels[3] == "S3"
        assert variants is not None and variants.labels is not None
        assert variants.labels[:2].tolist() == ["X:5:A:CT_CT", "rs1_CT"]
        data["variant_allele"][1] = ["CT", "A", ""]
        data.to_zarr(tmp_path / "swapped.vcz", zarr_format=int(guise[-1]), consolidated=False)
        with pytest.raises(InputError, match=r"no column 'rs1_CT'.*but 'rs1_A', which counts another allele"):
            rf.transform(result, f"{tmp_path / 'swapped.vcz'}::call_genotype")
