"""What people have in their hands: lists, pandas frames, AnnData objects and what those keep on disk.

Objects are known by the module and the name of their type, so neither pandas nor AnnData is ever imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.sources.matrix import SUPPORTED, cut


def array_of_lists(x: list[Any] | tuple[Any, ...]) -> npt.NDArray[Any]:
    """A list of rows as an array."""
    try:
        made = np.asarray(x)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"a {type(x).__name__} is read as a list of rows, all of the same length; this one is "
            f"not: {cut(error)}"
        ) from error
    if made.dtype.kind not in "iufb":
        raise InputError(f"a {type(x).__name__} of rows must hold numbers; this one holds {made.dtype}")
    return made


def array_of_frame(frame: Any) -> npt.NDArray[Any]:
    """The numbers of a pandas frame in a type that holds all its columns; missing ones are NaN."""
    if type(frame).__name__ != "DataFrame":
        raise InputError(f"cannot read a pandas {type(frame).__name__}; pass a DataFrame, as x.to_frame()")
    types = []
    for name, dtype in frame.dtypes.items():
        plain = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
        if getattr(plain, "kind", "O") not in "iufb" or plain.itemsize > 8:
            raise InputError(
                f"column {name!r} of the DataFrame holds {dtype}; supported are {SUPPORTED}. Leave it out, "
                f"as x.drop(columns=[{name!r}]), or convert it"
            )
        types.append(plain)
    if not types:
        raise InputError(f"the DataFrame has shape {frame.shape}: a matrix without columns cannot be reduced")
    wanted = np.result_type(*types)
    if not frame.isna().to_numpy().any():
        made: npt.NDArray[Any] = frame.to_numpy(dtype=wanted)
        return made
    made = frame.to_numpy(dtype=wanted if wanted.kind == "f" else np.dtype(np.float64), na_value=np.nan)
    return made


def matrix_of_cells(cells: Any) -> Any:
    """The matrix ``X`` of an AnnData object, of whatever kind it is."""
    if cells.X is None:
        raise InputError("the AnnData object has no X; pass one of its layers, as x.layers['counts']")
    return cells.X


def is_cells(x: object) -> bool:
    """Whether something is an AnnData object, or a view of one."""
    return type(x).__module__.partition(".")[0] == "anndata" and type(x).__name__ in ("AnnData", "Raw")


def is_kept_sparse(x: object) -> bool:
    """Whether something is a sparse matrix that AnnData has left on disk."""
    return (
        type(x).__module__.partition(".")[0] == "anndata" and hasattr(x, "group") and hasattr(x, "to_memory")
    )
