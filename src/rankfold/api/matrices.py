"""Functions for matrices: open them where they are, or copy them into a store with chunks that passes read
fast.
"""

from __future__ import annotations

from rankfold.api.arguments import public
from rankfold.pipeline import formats as sources
from rankfold.pipeline import importing as ingest

open_matrix = public(sources.open_source, name="open")
import_array = public(ingest.import_array, name="import_array")
