"""Stages that measure an embedding, as tasks: a search and the counting after it, and two lists compared.

Neighbors that are found on one side live in the state of the stage until their ranks on the other are
counted, so that a stage that is interrupted after the search does not search again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.api.embedding_quality import COMPARED_BYTES, neighborhood_preservation
from rankfold.api.execute import execute, identity_of
from rankfold.cluster.place import Place
from rankfold.methods.embedding.trust_request import FaithfulnessRequest
from rankfold.methods.embedding.trustworthiness import Faithfulness, with_lists
from rankfold.methods.knn.knn import CHUNK_BYTES, Neighbors
from rankfold.methods.task import Output
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Progress, Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.fit import RESERVE_BYTES
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import Arrangement, Fixed, Outline, plan_task
from rankfold.pipeline.storage.checkpoint import save_json
from rankfold.pipeline.storage.run_directory import RunDirectory, digest, load_record

EUCLIDEAN = "euclidean"
"""By which neighbors in an embedding are found, or ranked."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """Neighbors on one side, then their ranks on the other: trustworthiness, or continuity."""

    ranks: Faithfulness
    search: Neighbors

    @classmethod
    def of(cls, kind: str, x: Source, embedding: Source, asked: dict[str, Any]) -> Measuring:
        """Check that it can be done: arguments of the function of that name."""
        rest, metric = dict(asked), asked["metric"]
        ranked, listed = (x, embedding) if kind == "trustworthiness" else (embedding, x)
        rest["metric"], by = (metric, EUCLIDEAN) if kind == "trustworthiness" else (EUCLIDEAN, metric)
        request = FaithfulnessRequest.of(kind, ranked, listed, **rest)
        ranks = Faithfulness.of(ranked, request)
        return cls(ranks, ranks.search(listed, by))

    @property
    def source(self) -> Source:
        """The side whose ranks are counted."""
        return self.ranks.source

    def request(self) -> dict[str, Any]:
        """That of the ranks, as it is once the neighbors are found."""
        found = [self.search.source.fingerprint(), self.search.request()]
        return {**self.ranks.asked.as_dict(), "lists": found}

    def outputs(self) -> tuple[Output, ...]:
        """See the protocol: there are facts alone."""
        return ()

    def plan(self, budget: Budget) -> Plan:
        """Of both, one after the other."""
        first, second = self.search.plan(budget), self.ranks.plan(budget)
        return dataclasses.replace(
            second,
            passes=(*first.passes, *second.passes),
            most_passes=first.most_passes + second.most_passes,
            likely_passes=first.likely_passes + second.likely_passes,
            peak_bytes=max(first.peak_bytes, second.peak_bytes),
            driver_bytes=max(first.driver_bytes, second.driver_bytes),
            scratch_bytes=first.result_bytes + max(first.scratch_bytes, second.scratch_bytes),
            checkpoint_bytes=max(first.checkpoint_bytes, second.checkpoint_bytes),
            useful_workers=max(first.useful_workers, second.useful_workers),
        )

    def carry_out(self, place: Place, path: Path, scratch: str | None, progress: Progress) -> None:
        """Search, count, and leave the share at ``path``; goes on where it was interrupted."""
        identity = identity_of(self.request(), self.source.fingerprint())
        folder = RunDirectory.beside(path, None if scratch is None else Path(scratch), digest(identity))
        options: dict[str, Any] = {"scratch": scratch, "overwrite": True, "progress": progress}
        with folder.claimed(identity, overwrite=True):
            found = execute(self.search, place, out=folder.state / "neighbors.zarr", **options)
        searched = found.run
        execute(with_lists(self.ranks, found.path), place, out=path, **options)
        record = load_record(folder.record)
        save_json(folder.record, {**record, "search": searched.get("attempts", [])})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results of ``knn`` of the same rows: neighborhood preservation, as ``execution`` takes it."""

    paths: tuple[Path, Path]
    source: Source
    """Indices of the first."""

    other: Source
    k: int

    @classmethod
    def of(cls, paths: tuple[Path, Path], first: Source, second: Source, k: int | None) -> Comparison:
        """Check that they can be compared."""
        rows, most = (first.shape[0], second.shape[0]), min(first.shape[1], second.shape[1])
        if rows[0] != rows[1]:
            raise InputError(
                f"first has neighbors of {rows[0]} rows, second of {rows[1]}. Name two stages of the same "
                "rows, in the same order"
            )
        if k is not None and k > most:
            raise InputError(f"k {k} was asked for, but both results have {most}: ask for 1 to {most}")
        return cls(paths, first, second, most if k is None else k)

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return {"kind": "neighborhood_preservation", "k": self.k, "second": self.other.fingerprint()}

    def outputs(self) -> tuple[Output, ...]:
        """See the protocol: there are facts alone."""
        return ()

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        item, rows = self.source.dtype.itemsize, self.source.shape[0]
        reads = item * rows * (self.source.shape[1] + self.other.shape[1])
        held = 4 * COMPARED_BYTES + 4 * min(reads, CHUNK_BYTES[1])
        sweep = Pass("compare", "matrix", reads, 0, 20.0 * rows * self.k, held, 1, 1)
        arranged = Arrangement((sweep,), 1, RESERVE_BYTES + held, held, 0, 1, rows, rows, 1, 1)
        kind, dtype = "neighborhood_preservation", self.source.dtype
        return plan_task(
            Outline(kind, "exact", self.source, dtype, "rows", self.k, 0), Fixed(arranged), budget
        )

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        found = neighborhood_preservation(*self.paths, self.k)
        facts = {
            **run.facts(self.request(), "exact", self.source, fingerprint),
            "passes": 1,
            "value": found.value,
            "standard_error": found.standard_error,
        }
        run.describe(facts)
        return facts
