"""A folder that lives as long as the object, or the program."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import weakref
from pathlib import Path


class TemporaryFolder:
    """Unlike that of the standard library it goes without a warning when nobody holds it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir()) / f"rankfold-{secrets.token_hex(8)}"
        # Before the folder is there: a signal in between would leave it behind.
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700)
