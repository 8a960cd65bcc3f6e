"""Parameters of a search within a radius, checked before anything is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.radius.arguments import MOST_EDGES, NAMES
from rankfold.methods.svd.request import integer
from rankfold.methods.tree.coordinates import OF_DIRECTIONS, Box, box_of, require_points
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class RadiusRequest:
    """Parameters of ``radius_neighbors``."""

    radius: float
    metric: str = "euclidean"
    box: Box | None = None
    max_edges: int = MOST_EDGES
    """Which has no part in the result."""

    @classmethod
    def of(
        cls, source: Source, radius: object, metric: object, box: object, max_edges: object
    ) -> RadiusRequest:
        """A request from arguments of a caller; raises ``InputError`` for those that cannot be."""
        try:
            length = float(radius)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            length = math.nan
        if not 0 <= length < math.inf or isinstance(radius, bool):
            raise InputError(f"radius must be a number of at least 0, not {radius!r}")
        name = ALIASES.get(str(metric), str(metric))
        if name not in NAMES:
            raise InputError(f"metric {metric!r} is not known here: take one of {', '.join(NAMES)}")
        most = integer("max_edges", max_edges)
        if most < 1:
            raise InputError(f"max_edges must be at least 1, not {most}")
        lengths = box_of(box, source.shape[1], source.name)
        if name not in OF_DIRECTIONS:
            require_points(name, lengths, source)
        elif lengths is not None:
            raise InputError(f"a box is for distances of points, and {name} is of directions: leave box out")
        return cls(length, name, lengths, most)

    def as_dict(self) -> dict[str, Any]:
        """For the facts of a result, and what tells one request from another."""
        box = None if self.box is None else list(self.box)
        return {"kind": "radius_neighbors", "radius": self.radius, "metric": self.metric, "box": box}
