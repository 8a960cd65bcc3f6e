"""A folder that lives as long as the object, or the program."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class TemporaryFolder:
    """Unlike that of the standard library it goes without a warning when nobody holds it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="rankfold-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
