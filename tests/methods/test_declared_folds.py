"""What folds declare is what they do: the kernels that their steps call are those that they name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.engine import device
from rankfold.pipeline.engine.fold import DeclaredFold

X = np.abs(np.random.default_rng(0).standard_normal((600, 40)))


def every_sweep(folder: Path) -> None:
    folder.mkdir()
    for method in ("gram", "krylov", "sketch", "tsqr"):
        for x in (X, np.ascontiguousarray(X.T), X.astype(np.float32)):
            rf.pca(x, 5, solver=method, scale=True, threads=1)
    rf.svd(np.where(X > 1, np.nan, X), 3, missing="em", passes=2, threads=1)
    rf.qr(X, threads=1)
    fitted = rf.pca(X, 5, threads=1, out=folder / "pca.zarr")
    for call in (rf.check, rf.transform, rf.update):
        call(fitted, X, threads=1)
    rf.reconstruct(fitted, out=folder / "again.zarr", threads=1)
    for more in ({}, {"loss": "kullback-leibler"}, {"init": "nndsvd"}, {"constraint_W": 9.0}, {"weights": X}):
        rf.nmf(X, 4, threads=1, **more)  # type: ignore[arg-type]
    rf.nmf(X, 4, threads=1, missing="ignore", solver="mu")
    rf.nmf(X, 4, threads=1, weights=X, loss="kullback-leibler")
    rf.kmeans(X, 5, threads=1)
    rf.kmeans(X, 5, batch_rows=100, threads=1)
    rf.kmeans(X, init=np.concatenate([X[:3], X[:2] + 1e6]), threads=1)
    rf.trustworthiness(X, X[:, :2], 5, threads=1, sample_rows=100)


def subclasses(kind: type[Any]) -> set[type[Any]]:
    return {kind} | {below for each in kind.__subclasses__() for below in subclasses(each)}


def test_steps_call_the_kernels_that_folds_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every_sweep(tmp_path / "before")  # all modules are loaded
    called: dict[type[Any], set[Any]] = {}
    named: dict[type[Any], set[Any]] = {}
    inside: list[type[Any]] = []

    def recorded(kernel: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def call(*args: Any, **kwargs: Any) -> Any:
            if inside:
                called[inside[-1]].add(kernel.reference)  # type: ignore[attr-defined]
            return kernel(*args, **kwargs)

        return call

    def watched(fold: type[Any], step: Callable[..., None]) -> Callable[..., None]:
        def call(self: Any, *args: Any) -> None:
            inside.append(fold)
            called.setdefault(fold, set())
            named.setdefault(fold, set()).update(kernel.reference for kernel in self.kernels)
            try:
                step(self, *args)
            finally:
                inside.pop()

        return call

    for name, module in list(sys.modules.items()):
        if name.startswith("rankfold.methods"):
            for attribute, value in list(vars(module).items()):
                if callable(value) and hasattr(value, "reference"):
                    monkeypatch.setattr(module, attribute, recorded(value))
    for fold in subclasses(DeclaredFold):
        if "step" in vars(fold):
            monkeypatch.setattr(fold, "step", watched(fold, vars(fold)["step"]))
    every_sweep(tmp_path / "after")
    assert len(called) >= 15
    unnamed = {
        (fold.__name__, kernel.__name__)
        for fold, kernels in called.items()
        for kernel in kernels - named[fold]
    }
    assert not unnamed


def test_a_device_takes_a_fold_all_of_whose_kernels_have_a_body_there() -> None:
    from rankfold.kernels.linear.center_scale import measure
    from rankfold.kernels.linear.dense import leading_eigenpairs
    from rankfold.kernels.linear.panel import panel_product

    assert device.runs_on_device([panel_product, measure])  # a body of its own, a reference for any device
    assert not device.runs_on_device([panel_product, leading_eigenpairs]) and not device.runs_on_device([])
