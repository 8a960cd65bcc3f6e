"""Worker processes speak TLS where Dask's configuration requires it, with holders of the key of the run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

REQUIRE = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}

COMMAND = """
import stat, sys
from pathlib import Path
import numpy as np, rankfold as rf
out, keys = Path(sys.argv[1]), {}
def look(name, done, total):
    for folder in out.with_name("r.zarr.run").glob("tls-*"):
        keys.update({path.name: oct(path.stat().st_mode) for path in (folder, *folder.iterdir())})
workers = int(sys.argv[2])
x = np.random.default_rng(0).random((3000, 20))
rf.pca(x, 3, **({"workers": workers} if workers else {}), threads=1, memory="200MiB", out=out, progress=look)
print(sorted(keys.values()))
"""


@pytest.mark.process
@pytest.mark.slow
def test_worker_processes_may_speak_tls(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="TLS needs the package cryptography")
    words = [sys.executable, "-c", COMMAND, str(tmp_path / "r.zarr")]
    options = {"capture_output": True, "text": True, "env": {**os.environ, **REQUIRE}}
    ended = subprocess.run([*words, "2"], check=False, **options)  # type: ignore[call-overload]
    assert ended.returncode == 0, ended.stderr
    logs = "".join(path.read_text() for path in (tmp_path / "r.zarr.run" / "logs").iterdir())
    assert "tls://127.0.0.1" in logs and "tcp://" not in logs
    # A folder and files of this user alone, while it runs.
    assert ended.stdout.strip() == str(["0o100600"] * 3 + ["0o40700"])
    assert not list((tmp_path / "r.zarr.run").glob("tls-*"))
    plain = subprocess.run([*words[:-1], str(tmp_path / "s.zarr"), "0"], check=False, **options)  # type: ignore[call-overload]
    assert plain.returncode == 0, plain.stderr
    for name in ("components", "singular_values"):
        chunks = [path for path in sorted((tmp_path / "r.zarr" / name).rglob("*")) if path.is_file()]
        other = [path for path in sorted((tmp_path / "s.zarr" / name).rglob("*")) if path.is_file()]
        assert [path.read_bytes() for path in chunks] == [path.read_bytes() for path in other]


@pytest.mark.process
def test_who_has_no_key_of_the_run_reaches_no_scheduler(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="TLS needs the package cryptography")
    from distributed import Client, Scheduler, Security, SpecCluster
    from distributed.comm import connect

    from rankfold.cluster.certificates import make_certificates

    with make_certificates(tmp_path, tls=True) as (security, _):
        options = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0", **security}
        scheduler = {"cls": Scheduler, "options": options}
        with SpecCluster(scheduler=scheduler, workers={}, security=security["security"]) as cluster:
            address = cluster.scheduler_address
            with Client(address, security=security["security"], set_as_default=False) as client:
                assert client.scheduler_info()["address"] == address
            strangers = {address: Security.temporary(), address.replace("tls:", "tcp:"): Security()}
            for place, credentials in strangers.items():
                arguments = credentials.get_connection_args("client")
                with pytest.raises(OSError):
                    asyncio.run(_greet(connect, place, arguments))
    assert not list(tmp_path.iterdir())


async def _greet(connect: object, place: str, arguments: dict[str, object]) -> object:
    comm = await connect(place, timeout=5, **arguments)  # type: ignore[operator]
    try:
        await comm.write({"op": "identity", "reply": True})
        return await asyncio.wait_for(comm.read(), 10)
    finally:
        comm.abort()
