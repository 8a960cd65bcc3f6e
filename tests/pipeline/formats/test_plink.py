"""Genotypes of PLINK 1: numbers and names of the format, and files that do not belong together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from stores import read

import rankfold as rf
from rankfold.pipeline.data.describe import describe
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.errors import ChunkError, InputError, NonFiniteError, SourceNotFoundError
from rankfold.pipeline.formats import open_source

SAMPLES, VARIANTS = 37, 53

BITS = {2: 0b00, -1: 0b01, 1: 0b10, 0: 0b11}
"""Of copies of A1 as the format has them; -1 stands for a missing call."""


def calls(rows: int = SAMPLES, columns: int = VARIANTS, *, missing: float = 0.1) -> Any:
    """Copies of A1, int8, -1 where missing."""
    random = np.random.default_rng(0)
    shares = random.uniform(0.2, 0.8, columns)
    return np.where(
        random.random((rows, columns)) < missing, -1, random.binomial(2, shares, (rows, columns))
    ).astype("i1")


def write(
    path: Path,
    x: Any,
    *,
    by_variant: bool = True,
    samples: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
) -> None:
    """The three files, encoded number by number."""
    head, lines = (b"\x6c\x1b\x01", x.T) if by_variant else (b"\x6c\x1b\x00", x)
    body = bytearray()
    for line in lines.tolist():
        for start in range(0, len(line), 4):
            body.append(sum(BITS[call] << 2 * i for i, call in enumerate(line[start : start + 4])))
    path.write_bytes(head + body)
    rows, columns = x.shape
    samples = samples or [f"{i // 3} P{i} 0 0 0 -9" for i in range(rows)]
    variants = variants or [f"1\trs{j}\t0\t{100 + j}\tA\tG" for j in range(columns)]
    path.with_suffix(".fam").write_text("".join(f"{line}\n" for line in samples))
    path.with_suffix(".bim").write_text("".join(f"{line}\n" for line in variants))


def labels(source: Any, axis: int) -> list[str]:
    names = names_of(source, axis)
    assert names is not None and names.labels is not None
    return list(names.labels)


@pytest.mark.parametrize("by_variant", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (5, 8), (SAMPLES, VARIANTS)])
def test_numbers_are_copies_of_the_first_allele(
    tmp_path: Path, shape: tuple[int, int], by_variant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, path = calls(*shape), tmp_path / "x.bed"
    write(path, x, by_variant=by_variant)
    source = open_source(path)
    source.check()
    expected = np.where(x < 0, np.nan, x).astype("f4")
    for block_bytes in (2**18, 3):
        monkeypatch.setattr("rankfold.pipeline.formats.plink.BLOCK_BYTES", block_bytes)
        for top in range(shape[0]):
            for left in {0, shape[1] // 3, shape[1] - 1}:
                rows, columns = (top, min(shape[0], top + 6)), (left, shape[1])
                assert_array_equal(
                    read(source, rows, columns, apart=2), expected[slice(*rows), slice(*columns)]
                )
    assert describe(source).format == f"PLINK 1, by {'variant' if by_variant else 'sample'}"


def test_components_are_those_of_calls_with_a_mark(tmp_path: Path) -> None:
    x, path = calls(), tmp_path / "x.bed"
    write(path, x)
    result, other = (rf.pca(each, 3, prepare="patterson") for each in (path, x))
    for name in ("singular_values", "components", "scores", "prepare_1_patterson_calls"):
        assert_array_equal(result[name], other[name])
    with pytest.raises(NonFiniteError, match=r"row 'P\d+', column 'rs\d+_A'"):
        rf.pca(path, 3)
    rf.import_array(path, tmp_path / "x.zarr")
    again = rf.pca(tmp_path / "x.zarr", 3, prepare="patterson")
    np.testing.assert_allclose(again.singular_values, other.singular_values, rtol=1e-6)
    assert labels(open_source(tmp_path / "x.zarr"), 1)[1] == "rs1_A"
    order = np.random.default_rng(1).permutation(VARIANTS)
    write(tmp_path / "new.bed", x[:5, order], variants=[f"1 rs{j} 0 {100 + j} A G" for j in order])
    new = rf.transform(result, tmp_path / "new.bed").scores
    np.testing.assert_allclose(new, result.scores[:5], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["rs{}", "."])
def test_a_variant_whose_other_allele_is_counted_is_another_column(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, path = calls(missing=0), tmp_path / "x.bed"
    fit = [f"1 {name.format(j)} 0 {100 + j} A G" for j in range(VARIANTS)]
    write(path, x, variants=fit)
    result = rf.pca(path, 2)
    swapped = [line.replace("A G", "G A") if j == 7 else line for j, line in enumerate(fit)]
    x[:, 7] = 2 - x[:, 7]
    write(tmp_path / "new.bed", x, variants=swapped)
    names = [f"{'1:107:A:G' if name == '.' else 'rs7'}_{counted}" for counted in "AG"]
    aligned = "--ref-allele FIT.bim 6 2 --make-bed"
    with pytest.raises(InputError, match=f"no column '{names[0]}'.*but '{names[1]}', which .*{aligned}"):
        rf.transform(result, tmp_path / "new.bed")
    monkeypatch.setattr("rankfold.pipeline.data.names.MOST_LABELS", VARIANTS - 1)  # so that there is a digest
    with pytest.raises(InputError, match=f"labels along variant are others.*{aligned}"):
        rf.transform(result, tmp_path / "new.bed")


def test_names_are_those_of_samples_and_variants(tmp_path: Path) -> None:
    path = tmp_path / "x.bed"
    write(path, calls(3, 2), variants=["1 rs9 7 A G", "X . 0 12 AT A"])  # the first without centimorgans
    assert labels(open_source(path), 0) == ["P0", "P1", "P2"]
    assert labels(open_source(path), 1) == ["rs9_A", "X:12:A:AT_AT"]
    write(path, calls(3, 2), samples=["a 1 0 0 0 -9", "b 1 0 0 0 -9", "", "b 2 0 0 0 -9"])
    assert labels(open_source(path), 0) == ["a_1", "b_1", "b_2"]
    before = open_source(path).fingerprint()
    path.with_suffix(".bim").write_text("1 rs9 0 7 G A\n1 rs10 0 8 G A\n")
    assert open_source(path).fingerprint() != before


def test_what_is_no_bed_or_does_not_belong_to_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bed"

    def refused(error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            open_source(path)

    path.write_text("chr1\t100\t200\n")
    refused(InputError, r"begins with the bytes 63 68 72, .*6c 1b 01.*plink2 --vcf")
    path.write_bytes(b"")
    refused(InputError, "begins with the bytes of an empty file")
    write(path, calls())
    content = path.read_bytes()
    path.write_bytes(content[:2] + b"\x02" + content[3:])
    refused(InputError, "begins with the bytes 6c 1b 02")
    path.write_bytes(content[:-1])
    refused(ChunkError, r"holds 532 bytes, but 37 samples of its \.fam and 53 variants of its \.bim take 533")
    path.write_bytes(content + b"~")
    refused(InputError, r"holds 534 bytes.*take 533. Give the \.fam and \.bim that belong to it")
    path.write_bytes(content)
    source = open_source(path)
    path.write_bytes(content[:-1])
    with pytest.raises(ChunkError, match="532 bytes"):
        source.check()
    path.write_bytes(content)
    bim = path.with_suffix(".bim")
    bim.write_text(bim.read_text() + "1 rs\n")
    refused(InputError, r"line 54 of .*x\.bim has 2 of at least 5 words")
    bim.write_text("\n")
    refused(InputError, "without columns")
    for ending in (".bim", ".fam"):
        write(path, calls())
        os.remove(path.with_suffix(ending))
        refused(SourceNotFoundError, rf"and .*x\{ending} does not exist. Give all three files the same name")
    with pytest.raises(InputError, match="holds no array calls"):
        open_source(f"{path}::calls")
