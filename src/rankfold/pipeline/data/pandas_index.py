"""An index of pandas, rebuilt from the text that names keep of it.

Labels are compared as text: dates with a time zone, periods, durations and several levels are kept as they
print. What that text does not contain is kept as attributes of the axis.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rankfold.pipeline.data.named_objects import dates_among
from rankfold.pipeline.data.names import Array

LEVEL_TYPES = ("string", "integer", "floating", "boolean")
"""Kinds (``inferred_type``) of levels of a MultiIndex whose labels can be read from their printed form."""


UNREADABLE = (ValueError, TypeError, OverflowError, SyntaxError, RecursionError, MemoryError)
"""Exceptions raised for text that is no label of an index; the last two if brackets are nested too deep."""


def attributes_of_index(index: Any) -> dict[str, str]:
    """Facts on an index that the text of its labels lacks: a time zone, a time unit, or names of levels."""
    kind = type(index).__name__
    if kind == "DatetimeIndex" and index.tz is not None:
        return {"time_zone": str(index.tz)}
    if kind == "PeriodIndex":
        return {"period": index.freqstr}
    if kind == "TimedeltaIndex":
        return {"duration": index.unit}
    if kind == "MultiIndex" and all(level.inferred_type in LEVEL_TYPES for level in index.levels):
        return {"levels": json.dumps([None if name is None else str(name) for name in index.names])}
    return {}


def index_of_labels(pandas: Any, labels: Array, attributes: Mapping[str, str], name: str | None) -> Any:
    """Rebuild the pandas index that labels were made of, from what ``attributes_of_index`` returned.

    ``pandas`` is the module, ``name`` becomes that of the index. An index of text if that fails, such as for
    a time zone that is not known here.
    """
    try:
        if "time_zone" in attributes:
            dates = pandas.to_datetime(labels, utc=True, format="ISO8601")
            return pandas.DatetimeIndex(dates.tz_convert(attributes["time_zone"]), name=name)
        if "period" in attributes:
            return pandas.PeriodIndex(labels, freq=attributes["period"], name=name)
        if "duration" in attributes:
            counts = [int(label.partition(" ")[0]) for label in labels.tolist()]
            return pandas.TimedeltaIndex(np.array(counts, f"m8[{attributes['duration']}]"), name=name)
        if "levels" in attributes:
            rows = [ast.literal_eval(label) for label in labels.tolist()]
            return pandas.MultiIndex.from_tuples(rows, names=json.loads(attributes["levels"]))
    except (*UNREADABLE, KeyError):  # raised for an unknown zone
        pass
    return pandas.Index(dates_among(labels), name=name)
