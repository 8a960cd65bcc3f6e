"""Samples as estimators take them, and components as rankfold takes them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.utils._set_output import _get_output_config

import rankfold
from rankfold.methods.parts.outputs import write_outputs
from rankfold.pipeline.storage.result import write_group
from rankfold.pipeline.storage.temporary import TemporaryFolder

TOL = 1e-8
"""What ``tol=0`` asks of singular values that passes converge to: scikit-learn means as exact as possible."""

MOST_PASSES = 20
"""Of methods that stop on a tolerance, where the caller did not say."""


def is_large(x: object) -> bool:
    """Whether this is a matrix that is read a panel at a time."""
    if isinstance(x, str | os.PathLike):
        return True
    return type(x).__module__.partition(".")[0] in ("zarr", "dask", "xarray", "rankfold")


def require_plain_output(estimator: Any) -> None:
    """Refuse to make a data frame of what may exceed memory."""
    container = _get_output_config("transform", estimator)["dense"]
    if container != "default":
        raise ValueError(
            f"set_output(transform={container!r}) is for samples in memory: what is made of a matrix on disk "
            "is an array"
        )


def forget_names(estimator: Any, features: int) -> None:
    """Take the number of features from a matrix whose columns have no names."""
    estimator.n_features_in_ = features
    vars(estimator).pop("feature_names_in_", None)


def store_factors(estimator: Any) -> rankfold.Result:
    """Components of a fitted nonnegative factorization as a result in a temporary store."""
    folder = TemporaryFolder()
    path, h = folder.path / "result.zarr", estimator.components_
    write_outputs(path, {"H": h})
    request = {
        "kind": "nmf",
        "rank": len(h),
        "loss": "frobenius",
        "alpha_w": estimator.alpha_W,
        "l1_ratio": estimator.l1_ratio,
        "constraint_w": "nonnegative",
    }
    facts = {"kind": "nmf", "method": "minibatch", "request": request, "input": {"shape": list(h.shape)}}
    write_group(path, {**facts, "product_norm": 1.0})
    return rankfold.Result(path, temporary=folder)


def store_components(estimator: Any, samples: int) -> rankfold.Result:
    """Components of a fitted estimator as a result in a temporary store."""
    folder = TemporaryFolder()
    path, rank = folder.path / "result.zarr", len(estimator.components_)
    values = np.asarray(estimator.singular_values_, np.float64)
    small = {"components": estimator.components_, "singular_values": values, "mean": estimator.mean_}
    write_outputs(path, small)
    shape = [samples, estimator.n_features_in_]
    request = {"kind": "pca", "rank": rank, "center": True, "scale": False, "whiten": estimator.whiten}
    facts = {"kind": "pca", "method": "update", "request": request, "input": {"shape": shape}}
    write_group(path, facts)
    return rankfold.Result(path, temporary=folder)
