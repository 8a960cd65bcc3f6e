"""Parameters of a spectral embedding, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class SpectralRequest:
    """Parameters that a result depends on."""

    kind: str
    n_components: int
    tol: float
    passes: int
    seed: int
    alpha: float = 0.0
    """Power of the degrees that weights are divided by."""

    t: int = 0
    """Power of the eigenvalues that coordinates are multiplied with."""

    apart: bool = False
    """True if each component of the graph has coordinates of its own."""

    def check_rows(self, rows: int) -> None:
        """Raise ``InputError`` if a graph of ``rows`` rows has fewer dimensions than are asked for."""
        if self.n_components > rows - 1:
            raise InputError(
                f"n_components {self.n_components} was asked for, but {rows} rows have at most {rows - 1} "
                f"dimensions beside the constant one: ask for 1 to {rows - 1}"
                if rows > 1
                else "one row alone has no place among others: give neighbors of two rows or more"
            )

    def as_dict(self) -> dict[str, Any]:
        """Parameters as a dict, for the facts of a result and to tell requests apart."""
        facts = {"kind": self.kind, "n_components": self.n_components}
        if self.kind == "diffusion_map":
            facts |= {"alpha": self.alpha, "t": self.t}
        return facts | {"tol": self.tol, "passes": self.passes, "seed": self.seed, "apart": self.apart}
