"""Matrices: opened where they lie, or copied into a store that sweeps read well."""

from __future__ import annotations

from rankfold.pipeline import ingest, sources
from rankfold.pipeline.arguments import public

open_matrix = public(sources.open_source, name="open")
import_array = public(ingest.import_array, name="import_array")
