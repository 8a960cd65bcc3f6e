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

OPTIONS = {"ca_file": "--tls-ca-file", "cert": "--tls-cert", "key": "--tls-key"}


@contextlib.contextmanager
def make_certificates(folder: Path, *, tls: bool) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """What a scheduler must know, and the options of workers; the files they name are in ``folder``, for
    the user alone, until the block ends. TLS is spoken too where Dask's configuration requires it:
    ``DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True``.
    """
    import dask

    if not (tls or dask.config.get("distributed.comm.require-encryption", None)):
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
        options = []
        for key, option in OPTIONS.items():
            (keys / key).touch(mode=0o600)
            (keys / key).write_text(security.get_tls_config_for_role("worker")[key])
            options += [option, str(keys / key)]
        yield {"security": security, "protocol": "tls"}, options
    finally:
        remove(keys)
