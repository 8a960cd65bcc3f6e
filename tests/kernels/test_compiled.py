"""What is kept of compiled loops: right for every signature, whatever else is kept at the same time."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

from rankfold.kernels import _compiled

LOOP = """\
from rankfold.kernels._compiled import compile_loop


@compile_loop
def total(x):
    found = x[0]
    for i in range(1, len(x)):
        found += x[i]
    return found
"""

SIGNATURES = [np.arange(1, 6, dtype=dtype) for dtype in (np.float64, np.int64, np.float32, np.int32)]
"""Two and two of the same width: nothing but the right loop tells them apart."""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with a loop of its own, which is kept beside it."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    # Python knows bytecode of another source by its second and its size, which stay as they are here.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "loop.py").write_text(LOOP)
    return tmp_path / "loop.py"


def changed() -> None:
    """Forget what was read of files, as a new process does."""
    _compiled._read.cache_clear()
    _compiled.content_key.cache_clear()


def loaded(source: Path) -> ModuleType:
    """As another process would."""
    spec = importlib.util.spec_from_file_location("loop", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept(source: Path) -> list[Path]:
    """Files of compiled signatures."""
    return sorted((source.parent / "__pycache__").glob("loop.total-*.nbc"))


def test_loops_that_are_kept_are_not_compiled_again(source: Path) -> None:
    first = loaded(source).total
    assert [float(first(x)) for x in SIGNATURES] == [15] * 4
    assert len(kept(source)) == 4
    again = loaded(source).total
    assert [float(again(x)) for x in SIGNATURES] == [15] * 4
    assert sum(again.stats.cache_hits.values()) == 4 and not again.stats.cache_misses


def test_two_that_keep_at_once_do_not_mix_up_their_loops(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked at the index before the other has written it."""
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(_compiled._Files, "_load_index", lambda self: {})
        for x in SIGNATURES:
            assert loaded(source).total(x) == 15
    assert len(kept(source)) == 4
    for x in SIGNATURES * 2:
        found = loaded(source).total(x)
        assert found == 15 and isinstance(found, float) == (x.dtype.kind == "f")


def test_loops_of_other_content_are_compiled_again(source: Path) -> None:
    loaded(source).total(SIGNATURES[0])
    source.write_text(LOOP.replace("+=", "-="))
    changed()
    other = loaded(source).total
    assert other(SIGNATURES[0]) == -13 and other.stats.cache_misses
    assert len(kept(source)) == 2
    source.write_text(LOOP)
    changed()
    before = loaded(source).total
    assert before(SIGNATURES[0]) == 15 and not before.stats.cache_misses, "what was kept is replaced"


def test_a_key_takes_in_what_is_imported_from_other_files(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directly, or by another file; what nobody imports changes nothing."""
    monkeypatch.setattr(_compiled, "KERNELS", tmp_path / "kernels")
    (tmp_path / "kernels" / "family").mkdir(parents=True)
    files = {
        name: tmp_path / "kernels" / name for name in ("far.py", "near.py", "other.py", "family/__init__.py")
    }
    files["near.py"].write_text(
        "if True:\n    from rankfold.kernels import (\n        far,  # and why\n    )\n"
    )
    for name in ("far.py", "other.py", "family/__init__.py"):
        files[name].write_text("ROWS = 8\n")
    source.write_text("import rankfold.kernels.family\nfrom rankfold.kernels.near import far\n")
    keys = [_compiled.content_key(source)]
    for file in files.values():
        file.write_text(file.read_text().replace("8", "16") + "# touched\n")
        changed()
        keys.append(_compiled.content_key(source))
    differs = [key != after for key, after in itertools.pairwise(keys)]
    assert dict(zip(files, differs, strict=True)) == {**dict.fromkeys(files, True), "other.py": False}


@pytest.mark.parametrize("file", sorted(_compiled.KERNELS.rglob("*.py")), ids=lambda file: file.stem)
def test_imports_are_found_as_python_finds_them(file: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module is not None
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    stems = [_compiled.KERNELS.joinpath(*name.split(".")[2:]) for name in names if "rankfold.kernels" in name]
    expected = {each for stem in stems for each in (stem.with_suffix(".py"), stem / "__init__.py")}
    assert {each for each in expected if each.exists()} <= _compiled._read(file).imported


def test_clones_share_a_folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "shared"))
    loaded(source).total(SIGNATURES[0])
    (tmp_path / "clone").mkdir()
    clone = tmp_path / "clone" / "loop.py"
    shutil.copy(source, clone)
    os.utime(clone, (0, 0))
    again = loaded(clone).total
    assert again(SIGNATURES[0]) == 15 and not again.stats.cache_misses
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["rankfold"]


@pytest.mark.parametrize("damaged", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("left", [b"", b"\x80\x05what"])
def test_damage_costs_time_alone(source: Path, damaged: str, left: bytes) -> None:
    loaded(source).total(SIGNATURES[0])
    for path in (source.parent / "__pycache__").glob(f"loop.total-{damaged}"):
        path.write_bytes(left)
    assert loaded(source).total(SIGNATURES[0]) == 15
    mended = loaded(source).total
    assert mended(SIGNATURES[0]) == 15 and mended.stats.cache_hits


def test_a_full_disk_is_no_error(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, name: str, data: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_compiled._Files, "_save_data", full)
    assert loaded(source).total(SIGNATURES[0]) == 15
    assert not kept(source)


def test_a_package_where_nothing_can_be_kept(source: Path) -> None:
    """As in a container: neither beside the source, nor at home."""
    asked = f"""
import os, numba.core.caching as caching
caching._CacheLocator.ensure_cache_path = lambda self: (_ for _ in ()).throw(OSError(30, "read-only"))
import sys; sys.path.insert(0, {str(source.parent)!r})
import numpy, loop
assert loop.total(numpy.ones(3)) == 3
"""
    subprocess.run([sys.executable, "-c", asked], check=True, timeout=120)
    assert not kept(source)
