"""Parameters of a search within a radius, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.radius.arguments import RadiusArguments
from rankfold.methods.tree.coordinates import OF_DIRECTIONS, Box, box_of, require_points
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class RadiusRequest:
    """Checked parameters of ``radius_neighbors`` that a result depends on."""

    radius: float
    metric: str
    box: Box | None
    max_edges: int
    """Largest number of edges that are allowed; the result does not depend on it."""

    @classmethod
    def of(cls, source: Source, arguments: RadiusArguments) -> RadiusRequest:
        """Make a request from a caller's arguments; raises ``InputError`` for invalid ones."""
        name = ALIASES.get(arguments.metric, arguments.metric)
        lengths = box_of(arguments.box, source.shape[1], source.name)
        if name not in OF_DIRECTIONS:
            require_points(name, lengths, source)
        elif lengths is not None:
            raise InputError(f"a box is for distances of points, and {name} is of directions: leave box out")
        return cls(arguments.radius, name, lengths, arguments.max_edges)

    def as_dict(self) -> dict[str, Any]:
        """Parameters that identify the request, for JSON; also written to the facts of a result."""
        box = None if self.box is None else list(self.box)
        return {"kind": "radius_neighbors", "radius": self.radius, "metric": self.metric, "box": box}
