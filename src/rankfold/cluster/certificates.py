"""A certificate for one run, so that its scheduler and workers speak TLS with nobody else."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.run_directory import KEYS

PROTOCOL = "tls"
OPTIONS = {"ca_file": "--tls-ca-file", "cert": "--tls-cert", "key": "--tls-key"}


@contextlib.contextmanager
def make_certificates(folder: Path, *, tls: bool) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the TLS settings of a Dask scheduler, and the command-line options by which its workers match
    them.

    The files that they name lie in ``folder``, readable by the user alone, until the block ends. TLS is also
    used where Dask's configuration requires it: ``DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True``. Without
    TLS both are empty.
    """
    if not wants_tls(tls):
        yield {}, []
        return
    from distributed import Security

    try:
        security = Security.temporary()
    except ImportError as error:
        raise ClusterError(
            f"TLS, which tls: true or Dask's configuration asks for, needs a package that is missing: "
            f"{error}. Install cryptography"
        ) from error
    keys = Path(tempfile.mkdtemp(prefix=KEYS, dir=folder))
    try:
        for key in OPTIONS:
            (keys / key).touch(mode=0o600)
            (keys / key).write_text(security.get_tls_config_for_role("worker")[key])
        yield {"security": security, "protocol": PROTOCOL}, worker_options(keys)
    finally:
        remove(keys)


def wants_tls(tls: bool) -> bool:
    """True if TLS is used: a profile asks for it, or Dask's configuration requires it."""
    import dask

    return tls or bool(dask.config.get("distributed.comm.require-encryption", None))


def worker_options(keys: Path) -> list[str]:
    """Options of a worker that name the files of its certificate in the folder ``keys``."""
    return [word for key, option in OPTIONS.items() for word in (option, str(keys / key))]
