"""Files of single cells, and others in HDF5: the matrix and names are those that their libraries read."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from reference import same_bytes
from stores import read

import rankfold as rf
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.data.source import compressed
from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError
from rankfold.pipeline.exporting.plots.row_columns import open_column
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array

anndata = pytest.importorskip("anndata", reason="pip install anndata")
h5py = pytest.importorskip("h5py", reason="pip install h5py")

CELLS, GENES = 60, 12
X = np.random.default_rng(0).poisson(0.5, (CELLS, GENES)).astype(np.float32)
BARCODES = [f"C{i}-1" for i in range(CELLS)]
NAMES = ["A", "A", "A-1", *(f"G{i}" for i in range(GENES - 3))]
UNIQUE = ["A", "A-2", *NAMES[2:]]
"""The same by the rule of AnnData."""

TYPES = ["Gene Expression"] * 9 + ["Antibody Capture"] * 3


def whole(source: Any) -> Any:
    return read(source, (0, source.shape[0]), (0, source.shape[1]))


def labels(source: Any, axis: int) -> list[str]:
    names = names_of(source, axis)
    assert names is not None and names.labels is not None
    return list(names.labels)


def text(words: list[str]) -> Any:
    return np.array(words, "S")


def write_compressed(group: Any, x: Any = X) -> None:
    """Stored numbers as Cell Ranger has them: genes x cells by cells."""
    stored = scipy.sparse.csr_array(x)
    group["data"], group["shape"] = stored.data.astype("i4"), np.array(x.shape[::-1], "i4")
    group["indices"], group["indptr"] = stored.indices.astype("i8"), stored.indptr.astype("i8")
    group["barcodes"] = text(BARCODES)


def cell_ranger_3(path: Path, types: list[str] | None = None) -> Path:
    with h5py.File(path, "w") as file:
        write_compressed(file.create_group("matrix"))
        features = file.create_group("matrix/features")
        features["id"], features["name"] = text([f"E{i}" for i in range(GENES)]), text(NAMES)
        features["feature_type"] = text(types or ["Gene Expression"] * GENES)
        features["genome"], features["_all_tag_keys"] = text(["GRCh38"] * GENES), text(["genome"])
    return path


def cell_ranger_2(path: Path, *genomes: str) -> Path:
    with h5py.File(path, "w") as file:
        for genome in genomes or ("GRCh38",):
            write_compressed(group := file.create_group(genome))
            group["genes"], group["gene_names"] = text([f"E{i}" for i in range(GENES)]), text(NAMES)
    return path


def folder(path: Path, types: list[str] | None = None, *, old: bool = False, prefix: str = "") -> Path:
    """A folder of Cell Ranger, with compressed files or as version 2 wrote them."""
    path.mkdir()
    kinds = [[]] * GENES if old else [[kind] for kind in types or ["Gene Expression"] * GENES]
    features = "".join("\t".join([f"E{i}", NAMES[i], *kinds[i]]) + "\n" for i in range(GENES))
    scipy.io.mmwrite(path / f"{prefix}matrix.mtx", scipy.sparse.coo_array(X.T.astype(int)))
    (path / f"{prefix}barcodes.tsv").write_text("\n".join(BARCODES) + "\n")
    (path / f"{prefix}{'genes' if old else 'features'}.tsv").write_text(features)
    for file in [] if old else list(path.iterdir()):
        with gzip.open(f"{file}.gz", "wb") as out:
            out.write(file.read_bytes())
        file.unlink()
    return path


def loom(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("matrix", data=X.T, chunks=(5, 8), compression="gzip")
        file["row_attrs/Gene"], file["col_attrs/CellID"] = text(NAMES), text(BARCODES)
        file["layers/spliced"] = 2 * X.T
    return path


def old_anndata(path: Path, layout: str = "csr") -> Path:
    """As AnnData before 0.7 wrote it."""
    stored = scipy.sparse.csr_array(X).asformat(layout)
    cells = [(name.encode(), i % 3, i % 2 == 0) for i, name in enumerate(BARCODES)]
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = layout, np.array(X.shape)
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(stored, part)
        file["obs"] = np.array(cells, [("index", "S8"), ("kind", "i1"), ("good", "?")])
        file["var"] = np.array([(name.encode(),) for name in UNIQUE], [("index", "S8")])
        file["uns/kind_categories"] = text(["B", "NK", "T"])
    return path


def mudata(path: Path) -> Path:
    cells = anndata.AnnData(scipy.sparse.csr_array(X))
    cells.obs_names, cells.var_names = BARCODES, UNIQUE
    with h5py.File(path, "w") as file:
        for name, part in (("mod/rna", cells), ("mod/protein", cells[:, :3].copy())):
            anndata.io.write_elem(file, name, part)
        for part in ("obs", "var"):
            anndata.io.write_elem(file, part, getattr(cells, part))
    return path


KINDS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "Cell Ranger 3": (".h5", cell_ranger_3),
    "Cell Ranger 2": (".h5", cell_ranger_2),
    "loom": (".loom", loom),
    "AnnData before 0.7": (".h5ad", old_anndata),
    "the same by columns": (".h5ad", lambda path: old_anndata(path, "csc")),
    "MuData": (".h5mu::rna", mudata),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_cells_and_columns_genes_with_their_names(tmp_path: Path, kind: str) -> None:
    ending, write = KINDS[kind]
    suffix, _, part = ending.partition("::")
    place = f"{write(tmp_path / f'x{suffix}')}{'::' * bool(part)}{part}"
    import_array(place, tmp_path / "x.zarr")
    for source in (open_source(place), open_source(tmp_path / "x.zarr")):
        np.testing.assert_array_equal(whole(source), X)
        assert labels(source, 0) == BARCODES and labels(source, 1) == UNIQUE
        assert (compressed(source) is None) == (kind == "loom")
    source = open_source(place)
    source.check()
    result = rf.svd(place, 3, out=tmp_path / "r.zarr")
    np.testing.assert_allclose(result.s, np.linalg.svd(X)[1][:3], rtol=1e-5)
    assert same_bytes(rf.svd(place, 3, out=tmp_path / "r.zarr")) == same_bytes(result)


@pytest.mark.parametrize("write", [cell_ranger_3, cell_ranger_2, folder, old_anndata])
def test_what_scanpy_reads_is_what_is_read_and_takes_results(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    scanpy = pytest.importorskip("scanpy", reason="pip install scanpy")
    suffix = {folder: "", old_anndata: ".h5ad"}.get(write, ".h5")
    place = write(tmp_path / f"x{suffix}")
    reading = {folder: scanpy.read_10x_mtx, old_anndata: scanpy.read_h5ad}.get(write, scanpy.read_10x_h5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = reading(place)
        unique = theirs.copy()
        unique.var_names_make_unique()
    import_array(place, tmp_path / "x.zarr")
    ours = open_source(tmp_path / "x.zarr")
    np.testing.assert_array_equal(whole(ours), theirs.X.toarray())
    assert labels(ours, 0) == list(theirs.obs_names)
    result = rf.pca(ours, 2)
    assert labels(ours, 1) == list(unique.var_names)
    for cells in (theirs, unique, unique[::-1].copy()):
        result.to_anndata(cells)


@pytest.mark.parametrize("write", [cell_ranger_3, folder])
def test_of_features_of_several_types_those_of_genes_are_taken_and_it_is_said(
    tmp_path: Path, write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    place = write(tmp_path / ("x.h5" if write is cell_ranger_3 else "x"), TYPES)

    def columns(part: str) -> list[str]:
        import_array(f"{place}{part}", tmp_path / "x.zarr", overwrite=True)
        made = open_source(tmp_path / "x.zarr")
        assert compressed(made) is not None
        np.testing.assert_array_equal(whole(made), X[:, [UNIQUE.index(each) for each in labels(made, 1)]])
        return labels(made, 1)

    assert columns("") == UNIQUE[:9]
    assert "other features than genes: Antibody Capture (3). The 9 of Gene Expression are read" in caplog.text
    caplog.clear()
    assert columns("::matrix") == UNIQUE
    assert columns("::matrix/Antibody Capture") == UNIQUE[9:]
    assert not caplog.text
    with pytest.raises(
        SourceNotFoundError, match=r"no features of type 'Anti'. It has Gene Expression \(9\), A"
    ):
        import_array(f"{place}::matrix/Anti", tmp_path / "y.zarr")


def test_a_folder_with_a_blank_is_quoted_in_what_is_suggested(tmp_path: Path) -> None:
    place = folder(tmp_path / "cr out")
    with pytest.raises(InputError, match=rf"import it first: rankfold import '{place}' STORE\.zarr$"):
        open_source(str(place))
    np.savez_compressed(tmp_path / "x y.npz", x=X)
    with pytest.raises(InputError, match=rf"rankfold import '{tmp_path}/x y\.npz::x' STORE\.zarr$"):
        open_source(f"{tmp_path}/x y.npz::x")


def test_files_of_cell_ranger_are_known_by_what_lies_beside(tmp_path: Path) -> None:
    for name, options in (("old", {"old": True}), ("geo", {"prefix": "GSM1_"})):
        place = folder(tmp_path / name, **options)
        import_array(place, tmp_path / f"{name}.zarr")
        np.testing.assert_array_equal(whole(open_source(tmp_path / f"{name}.zarr")), X)
    matrix, barcodes = (place / f"GSM1_{name}.gz" for name in ("matrix.mtx", "barcodes.tsv"))
    report = import_array(matrix, tmp_path / "file.zarr")
    assert report.shape == X.shape and report.notes[0].startswith("genes x cells of Cell Ranger: rows are")
    with pytest.raises(InputError, match=r"is a folder of Cell Ranger; import it first: rankfold import"):
        open_source(place)
    for change, found in (
        (lambda lines: lines[1:], "59 lines"),
        (lambda lines: [*lines, "C"], "more than 60"),
    ):
        barcodes.write_bytes(gzip.compress("\n".join(change(BARCODES)).encode()))
        with pytest.raises(ChunkError, match=f"has {found}.*is of 60, so they do not belong together"):
            import_array(place, tmp_path / "none.zarr")
    barcodes.unlink()
    assert import_array(matrix, tmp_path / "alone.zarr").shape == X.T.shape


def test_what_is_meant_is_told_by_names_of_matrices(tmp_path: Path) -> None:
    two = cell_ranger_2(tmp_path / "two.h5", "hg19", "mm10")
    with pytest.raises(InputError, match=r"holds hg19 \(60, 12\), mm10 \(60, 12\). Name one: .*two.h5::hg19"):
        open_source(two)
    np.testing.assert_array_equal(whole(open_source(f"{two}::mm10")), X)
    with pytest.raises(InputError, match=r"mod/protein/X \(60, 3\), mod/rna/X"):
        open_source(mudata(tmp_path / "x.h5mu"))
    cells = anndata.AnnData(X, layers={"counts": scipy.sparse.csr_array(X)})
    cells.write_h5ad(tmp_path / "x.h5ad")
    for call in (open_source, rf.open):
        with pytest.raises(
            SourceNotFoundError, match=r"no dataset layers/count. Did you mean .*::layers/counts\?"
        ):
            call(f"{tmp_path / 'x.h5ad'}::layers/count")
    made = loom(tmp_path / "x.loom")
    np.testing.assert_array_equal(whole(open_source(f"{made}::layers/spliced")), 2 * X)
    np.testing.assert_array_equal(whole(open_source(made, row_axes="gene")), X.T)
    with pytest.raises(InputError, match=r"give rows by name, row_axes='cell'"):
        open_source(made, row_axes=0)


def test_old_annotations_choose_cells_and_results_are_refused(tmp_path: Path) -> None:
    place = old_anndata(tmp_path / "x.h5ad")
    np.testing.assert_array_equal(whole(open_source(place, mask_obs="good")), X[::2])
    with pytest.raises(InputError, match=r"obs of .* has no column 'goot'. Did you mean good\?"):
        open_source(place, mask_obs="goot")
    kinds = open_column(f"{place}::kind")
    assert kinds.categories == ("B", "NK", "T") and kinds.read(0, 4).tolist() == [0, 1, 2, 0]
    np.testing.assert_array_equal(open_column(f"{place}::{UNIQUE[3]}").read(0, CELLS), X[:, 3])
    with pytest.raises(
        SourceNotFoundError, match=r"no 'kin': name one after ::, of obs/good, obs/kind, or the na"
    ):
        open_column(f"{place}::kin")
    with pytest.raises(InputError, match=r"before version 0.7, .*read_h5ad\(old\).write_h5ad\(new\)"):
        rf.pca(X, 2).to_anndata(place)


def test_files_of_matlab(tmp_path: Path) -> None:
    stored = scipy.sparse.csc_array(X.astype("f8"))
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        file["dense"], file["words"] = X.T, np.zeros((2, 3), "u2")
        group = file.create_group("sparse")
        group["data"], group["ir"], group["jc"] = stored.data, stored.indices, stored.indptr
        group.attrs["MATLAB_sparse"] = np.uint64(CELLS)
        for name, kind in (("dense", "single"), ("words", "char"), ("sparse", "double")):
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    for name in ("dense", "sparse"):
        np.testing.assert_array_equal(whole(open_source(f"{tmp_path / 'x.mat'}::{name}")), X)
    with pytest.raises(InputError, match="words is of class char"):
        open_source(f"{tmp_path / 'x.mat'}::words")
    scipy.io.savemat(tmp_path / "old.mat", {"x": X})
    with pytest.raises(InputError, match=r"not begin as an HDF5 file does.*save\(..., '-v7.3'\)"):
        open_source(tmp_path / "old.mat")


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_a_data_frame_on_disk_is_a_matrix_with_names(tmp_path: Path, ending: str) -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    random = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"age": np.arange(CELLS), "a b": random.random(CELLS), "old": np.arange(CELLS) > 9}, index=BARCODES
    )
    cells = anndata.AnnData(X, obs=pandas.DataFrame(index=BARCODES))
    cells.obsm["frame"] = frame
    cells.obsm["words"] = frame.assign(kind=pandas.Categorical(["T"] * CELLS))
    cells.obsm["gaps"] = frame.assign(age=frame["age"].astype("Int64"))
    cells.obsm["empty"] = frame[[]]
    path = tmp_path / f"x.{ending}"
    getattr(cells, f"write_{ending}")(path)
    source = open_source(f"{path}::obsm/frame")
    assert source.dtype == np.float64
    np.testing.assert_array_equal(whole(source), frame.to_numpy(np.float64))
    np.testing.assert_array_equal(
        read(source, (3, 50), (1, 3), apart=2), frame.to_numpy(np.float64)[3:50, 1:]
    )
    assert labels(source, 0) == BARCODES and labels(source, 1) == ["age", "a b", "old"]
    import_array(f"{path}::obsm/frame", tmp_path / "copy.zarr")
    assert labels(open_source(tmp_path / "copy.zarr"), 1) == labels(source, 1)
    fit = rf.pca(frame, 2)
    np.testing.assert_array_equal(rf.pca(f"{path}::obsm/frame", 2).scores, fit.scores)
    for element, message in (
        ("words", r"column 'kind' of .*obsm/words holds categorical"),
        ("gaps", r"column 'age' of .*obsm/gaps holds nullable-integer"),
        ("empty", "is a data frame without columns"),
    ):
        for refuse in (open_source, lambda place: import_array(place, tmp_path / "new.zarr")):
            with pytest.raises(InputError, match=message):
                refuse(f"{path}::obsm/{element}")
