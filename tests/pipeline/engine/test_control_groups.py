"""Limits of control groups count along the whole path of a process, in either version, wherever mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankfold.cluster.doctor import local
from rankfold.pipeline.engine import memory
from rankfold.pipeline.engine.memory import MemoryLimit, tightest_limit

MACHINE = 64 * 2**30
NONE = {1: "9223372036854771712", 2: "max"}
LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
JOB = "slurm/job_7/step_0/task_0"


def process(tmp_path: Path, groups: str, *mounts: str) -> Path:
    """The folder of a process in these groups, with the tree mounted at these places."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    others = "22 27 0:21 / /proc rw,relatime - proc proc rw\n25 24 0:23 / /dev rw shared:4 - tmpfs tmpfs rw\n"
    (proc / "mountinfo").write_text(others + "".join(mounts))
    return proc


def mount(version: int, root: str, folder: Path) -> str:
    kind = "cgroup cgroup rw,memory" if version == 1 else "cgroup2 cgroup2 rw,nsdelegate"
    place = str(folder).replace(" ", r"\040")
    return f"35 31 0:32 {root} {place} rw,relatime shared:9 master:2 - {kind}\n"


def line(version: int, group: str) -> str:
    return f"4:cpu,memory:{group}\n2:cpu:/\n" if version == 1 else f"0::{group}\n"


def limited(folder: Path, version: int, limit: str, used: int = 0, inactive: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LIMIT[version]).write_text(f"{limit}\n")
    (folder / USAGE[version]).write_text(f"{used}\n")
    own, below = (inactive, 0) if version == 2 else (inactive // 2, inactive)
    (folder / "memory.stat").write_text(
        f"anon 5\ninactive_file {own}\nactive_file 3\ntotal_inactive_file {below}\n"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_room_on_the_path_counts(tmp_path: Path, version: int) -> None:
    root = tmp_path / "my groups"
    proc = process(tmp_path, line(version, f"/{JOB}"), mount(version, "/", root))
    for folder in (root / "slurm", root / JOB, root):
        limited(folder, version, NONE[version], 10**12)
    limited(root / "slurm/job_7", version, "5000", used=1000)
    limited(root / "slurm/job_7/step_0", version, "4500", used=200)
    limited(root / "slurm/job_8", version, "10")  # beside the path
    assert tightest_limit(MACHINE, proc) == MemoryLimit(5000, 4000)
    limited(root / "slurm/job_7", version, "6000", used=1000)
    assert tightest_limit(MACHINE, proc) == MemoryLimit(4500, 4300)
    limited(root / "slurm/job_7/step_0", version, "4500", used=9000)
    assert tightest_limit(MACHINE, proc) == MemoryLimit(4500, 0)
    assert tightest_limit(4500, proc) is None  # more than the machine has is none


@pytest.mark.parametrize("version", [1, 2])
def test_inactive_page_cache_is_room(tmp_path: Path, version: int) -> None:
    proc = process(tmp_path, line(version, f"/{JOB}"), mount(version, "/", tmp_path / "groups"))
    limited(tmp_path / "groups" / JOB, version, "5000", used=5000, inactive=3000)
    assert tightest_limit(MACHINE, proc) == MemoryLimit(5000, 3000)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("root", "group"),
    [("/", "/"), ("/docker/a", "/docker/a"), ("/docker/a", "/elsewhere"), ("/", "/../../other")],
)
def test_a_container_has_the_limit_of_the_root_of_its_mount(
    tmp_path: Path, version: int, root: str, group: str
) -> None:
    proc = process(tmp_path, line(version, group), mount(version, root, tmp_path / "groups"))
    limited(tmp_path / "groups", version, "5000", used=1000)
    limited(tmp_path / "other", version, "1")
    assert tightest_limit(MACHINE, proc) == MemoryLimit(5000, 4000)


def test_a_group_below_the_root_of_a_mount_is_found(tmp_path: Path) -> None:
    proc = process(tmp_path, line(2, "/docker/a/inner"), mount(2, "/docker/a", tmp_path / "groups"))
    limited(tmp_path / "groups" / "inner", 2, "5000", used=1000)
    assert tightest_limit(MACHINE, proc) == MemoryLimit(5000, 4000)


def test_both_versions_may_be_mounted(tmp_path: Path) -> None:
    """As systemd does: version 2 for itself, and controllers by version 1."""
    mounts = mount(2, "/", tmp_path / "unified"), mount(1, "/", tmp_path / "memory")
    proc = process(tmp_path, line(1, f"/{JOB}") + line(2, "/"), *mounts)
    (tmp_path / "unified").mkdir()
    limited(tmp_path / "memory" / JOB, 1, "5000", used=1000)
    assert tightest_limit(MACHINE, proc) == MemoryLimit(5000, 4000)


def test_where_no_group_limits_memory_there_is_no_limit(tmp_path: Path) -> None:
    assert tightest_limit(MACHINE, tmp_path / "nowhere") is None
    proc = process(tmp_path, line(2, "/") + "1:name=systemd:/\n", mount(2, "/", tmp_path / "gone"))
    assert tightest_limit(MACHINE, proc) is None


def test_free_memory_is_that_within_the_limit_and_doctor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (None, MemoryLimit(3 * 2**30, 2 * 2**30)):
        monkeypatch.setattr(memory, "tightest_limit", lambda most, there=there: there)
        monkeypatch.setattr(memory, "_field", lambda *names: 40 * 2**30)
        said = local.check_cores_and_memory().found
        assert said.startswith(f"{local.usable_cores()} cores of {os.cpu_count()}, ")
        if there is None:
            assert memory.available_bytes() == 40 * 2**30 and said.endswith("40 GiB of memory are free")
        else:
            assert memory.available_bytes() == 2 * 2**30
            assert said.endswith("2 GiB of memory are free, within a limit of 3 GiB on this process")
