"""Parameters of a spectral embedding, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.random_keys import check_seed
from rankfold.methods.spectral.arguments import MOST_PASSES, TOL
from rankfold.methods.svd.request import integer, number
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class SpectralRequest:
    """Parameters that a result depends on."""

    kind: str = "spectral"
    n_components: int = 2
    alpha: float = 0.0
    """Power of the degrees that weights are divided by."""

    t: int = 0
    """Power of the eigenvalues that coordinates are multiplied with."""

    tol: float = TOL
    passes: int = MOST_PASSES
    seed: int = 0
    apart: bool = False
    """Whether each component of the graph has coordinates of its own."""

    @classmethod
    def of(cls, kind: str, **arguments: Any) -> SpectralRequest:
        """A request from arguments of a caller, with numbers as numbers."""
        for name in arguments:
            convert = number if name in ("alpha", "tol") else integer
            arguments[name] = convert(name, arguments[name])
        request = cls(kind, **arguments)
        request.check()
        return request

    def check(self) -> None:
        """Raise ``InputError`` for what cannot be done."""
        for name, least in (("n_components", 1), ("passes", 1), ("t", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be {least} or more, not {getattr(self, name)}")
        if not 0 <= self.alpha <= 1:
            raise InputError(
                f"alpha must lie between 0 (weights as they are) and 1 (density taken out), not {self.alpha}"
            )
        if not 0 <= self.tol < 1:
            raise InputError(f"tol must lie in 0 .. 1, not {self.tol}")
        check_seed(self.seed)

    def check_rows(self, rows: int) -> None:
        """The same, when it is known how many rows there are."""
        if self.n_components > rows - 1:
            raise InputError(
                f"n_components {self.n_components} was asked for, but {rows} rows have at most {rows - 1} "
                f"dimensions beside the constant one: ask for 1 to {rows - 1}"
                if rows > 1
                else "one row alone has no place among others: give neighbors of two rows or more"
            )

    def as_dict(self) -> dict[str, Any]:
        """For the facts of a result, and what tells one request from another."""
        facts = {"kind": self.kind, "n_components": self.n_components}
        if self.kind == "diffusion_map":
            facts |= {"alpha": self.alpha, "t": self.t}
        return facts | {"tol": self.tol, "passes": self.passes, "seed": self.seed, "apart": self.apart}
