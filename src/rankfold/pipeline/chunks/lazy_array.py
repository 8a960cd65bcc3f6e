"""Arrays that are read when they are used: the interface of NumPy arrays, over a function that reads boxes.

An index reads the part that it selects, as for an array in memory. Sums and means read a block of rows at a
time. Anything else, such as arithmetic, reads the whole array into memory first and gives a NumPy array. So
code that was written for NumPy arrays works with these, and takes the memory stated here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from rankfold.pipeline.text import printable, shortened

Array = npt.NDArray[Any]

Read = Callable[[tuple[Any, ...]], Array]
"""Function that reads the elements at all combinations of indices, one selection for each axis.

A selection is a slice of positive step, or ascending indices.
"""

BLOCK_BYTES = 2**24
"""Bytes of the rows that sums, means and loops read at a time, unless one row takes more."""


def in_one_line(name: str, array: LazyArray) -> str:
    """Name, shape and type of an array for its ``repr``; the name alone if it contains the shape."""
    lengths = " x ".join(map(str, array.shape))
    facts = "" if str(array.shape) in name else f": {lengths} {array.dtype}"
    return printable(f"<{shortened(name)}{facts}>")


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Indexing, arithmetic, reductions and methods of NumPy's arrays, for an array that is not in memory.

    A subclass has ``shape``, ``dtype`` and ``read_selection``, which is a ``Read``.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...

        @property
        def dtype(self) -> np.dtype[Any]: ...

        def read_selection(self, selection: tuple[Any, ...]) -> Array: ...

        def __getattr__(self, name: str) -> Any: ...

    @property
    def ndim(self) -> int:
        """Number of axes, as ``numpy.ndarray.ndim``."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Product of the lengths of all axes, as ``numpy.ndarray.size``."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size == 1:
            return bool(np.asarray(self))
        raise ValueError("whether an array is true is not clear; use a.any() or a.all()")

    def __getitem__(self, key: Any) -> Any:
        """A part as a NumPy array or scalar, by any index that NumPy's arrays take."""
        return part(self.shape, key, self.read_selection)

    def __iter__(self) -> Iterator[Any]:
        for block in self.row_blocks():
            yield from block

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The whole array, read into memory."""
        if copy is False:
            raise ValueError("numbers are in a file, so that an array of them is a copy")
        return np.asarray(self[...], dtype)

    def row_blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[Array]:
        """Blocks of rows in order, as NumPy arrays of at most ``block_bytes``, but at least one row."""
        step = max(1, block_bytes // max(1, math.prod(self.shape[1:]) * self.dtype.itemsize))
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a universal function of NumPy to the whole array, read into memory."""
        if any(isinstance(each, LazyArray) for each in options.get("out") or ()):
            raise TypeError("numbers in a file cannot be written to: numpy.asarray(a) is a copy of them")
        given = [np.asarray(each) if isinstance(each, LazyArray) else each for each in inputs]
        return getattr(ufunc, method)(*given, **options)

    @property
    def T(self) -> Array:
        """The transposed array, read into memory."""
        return np.asarray(self).T

    @property
    def real(self) -> Array:
        """Real parts of the whole array, read into memory."""
        return np.asarray(self).real

    @property
    def imag(self) -> Array:
        """Imaginary parts of the whole array, read into memory."""
        return np.asarray(self).imag

    # A block of rows at a time ------------------------------------------------------------------------

    def sum(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Sum along axes; reads a block of rows at a time."""
        return self._reduced(np.sum, np.add, axis, dtype, out, keepdims)

    def min(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Minimum along axes; reads a block of rows at a time."""
        return self._reduced(np.min, np.minimum, axis, None, out, keepdims)

    def max(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Maximum along axes; reads a block of rows at a time."""
        return self._reduced(np.max, np.maximum, axis, None, out, keepdims)

    def mean(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Mean along axes, summed in float64 or wider; reads a block of rows at a time."""
        wide, given = self._type_of_sums(dtype)
        total = self._reduced(np.sum, np.add, axis, wide, out, keepdims)
        return np.asarray(total / self._count(axis)).astype(given)[()]

    def var(
        self, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False
    ) -> Any:
        """Variance along axes; reads the array twice, a block of rows at a time."""
        wide, given = self._type_of_sums(dtype)
        real = np.zeros(0, wide).real.dtype
        axes = _axes(axis, self.ndim)
        if 0 not in axes:  # every row has a mean of its own
            of_rows = [np.var(block, axes, wide, ddof=ddof, keepdims=keepdims) for block in self.row_blocks()]
            return np.concatenate(of_rows).real.astype(np.zeros(0, given).real.dtype)
        mean = self.mean(axis, wide, keepdims=True)

        def squares(block: Array, axis: Any, dtype: Any, keepdims: bool) -> Any:
            rest = block.astype(dtype) - mean
            return np.sum((rest * rest.conj()).real, axis=axis, keepdims=keepdims)

        total = self._reduced(squares, np.add, axis, wide, out, keepdims)
        values = total / max(self._count(axis) - ddof, 0)
        return np.asarray(values, real).astype(np.zeros(0, given).real.dtype)[()]

    def std(
        self, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False
    ) -> Any:
        """Standard deviation along axes; reads the array twice, a block of rows at a time."""
        return np.sqrt(self.var(axis, dtype, out, ddof, keepdims))

    def _type_of_sums(self, dtype: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Types of the sum behind a mean, and of the mean: as NumPy's, but a sum is never below float64."""
        given = np.dtype(dtype) if dtype is not None else np.mean(np.zeros(1, self.dtype)).dtype
        return np.result_type(given, np.float64), given

    def _count(self, axis: Any) -> int:
        """Number of elements that are reduced to one along ``axis``."""
        return math.prod(self.shape[each] for each in _axes(axis, self.ndim))

    def _reduced(
        self, of_block: Any, join: np.ufunc, axis: Any, dtype: Any, out: None, keepdims: bool
    ) -> Any:
        if out is not None:
            raise TypeError("an array for results cannot be given; the result is a new one")
        axes, options = _axes(axis, self.ndim), ({} if dtype is None else {"dtype": dtype})
        if not self.size:
            return of_block(np.empty(self.shape, self.dtype), axis=axes, keepdims=keepdims, **options)
        if 0 not in axes:
            parts = [of_block(block, axis=axes, keepdims=keepdims, **options) for block in self.row_blocks()]
            return np.concatenate(parts)
        found = None
        for block in self.row_blocks():
            here = of_block(block, axis=axes, keepdims=keepdims, **options)
            found = here if found is None else join(found, here)
        return found


METHODS = (
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "choose", "clip", "compress"),
    *("conj", "conjugate", "copy", "cumprod", "cumsum", "diagonal", "dot", "flatten", "item", "nonzero"),
    *("prod", "ravel", "repeat", "reshape", "round", "searchsorted", "squeeze", "swapaxes", "take"),
    *("tobytes", "tolist", "trace", "transpose"),
)
"""Names of methods of NumPy arrays that read the whole array into memory."""


def _by_reading(name: str) -> Callable[..., Any]:
    def method(self: LazyArray, *given: Any, **options: Any) -> Any:
        return getattr(np.asarray(self), name)(*given, **options)

    method.__name__, method.__doc__ = name, f"``numpy.ndarray.{name}`` of all numbers, in memory."
    return method


for _name in METHODS:
    setattr(LazyArray, _name, _by_reading(_name))


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes of a reduction, counted from 0; all for None. Raises ``AxisError`` for an axis out of range."""
    return normalize_axis_tuple(range(ndim) if axis is None else axis, ndim)


# Parts --------------------------------------------------------------------------------------------------


def part(shape: tuple[int, ...], key: Any, read: Read) -> Any:
    """The part of an array of ``shape`` that the NumPy index ``key`` selects, read by ``read``.

    Only the lines of each axis are read that it touches; a line is all that one index along an axis selects,
    such as a row.

    Raises
    ------
    IndexError
        There are too many indices, or one is beyond its axis, as in NumPy.
    """
    indices = _per_axis(shape, key)
    lines: list[Any] = []
    final: list[Any] = []
    axis = 0
    for index in indices:
        if index is None:
            final.append(None)
            continue
        line, rest = _line(index, shape[axis], axis)
        lines.append(line)
        final.append(rest)
        axis += 1
    return read(tuple(lines))[tuple(final)]


def _per_axis(shape: tuple[int, ...], key: Any) -> list[Any]:
    """Split a NumPy index into an index for each axis of the array, with None in between for a new axis."""
    given = list(key) if isinstance(key, tuple) else [key]
    indices: list[Any] = []
    for each in given:
        is_list = isinstance(each, (list, LazyArray)) or (hasattr(each, "__array__") and np.ndim(each))
        index = np.asarray(each) if is_list or isinstance(each, np.ndarray) else each
        if isinstance(index, np.ndarray) and index.dtype == bool and index.ndim > 1:
            axis = _taken(indices)
            if index.shape != shape[axis : axis + index.ndim]:
                raise IndexError(f"a mask of shape {index.shape} is for an array of shape {shape}")
            indices += list(np.nonzero(index))
        else:
            indices.append(index)
    taken = _taken(indices)
    if taken > len(shape):
        raise IndexError(f"too many indices: the array has {len(shape)} axes, but {taken} were indexed")
    places = [at for at, each in enumerate(indices) if each is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = places[0] if places else len(indices)
    return [*indices[:at], *[slice(None)] * (len(shape) - taken), *indices[at + len(places) :]]


def _taken(indices: list[Any]) -> int:
    """Number of axes of the array that indices apply to; new axes and ellipses do not count."""
    return sum(each is not None and each is not Ellipsis for each in indices)


def _line(index: Any, length: int, axis: int) -> tuple[Any, Any]:
    """Split an index along one axis, of that length, into lines to read and an index of these lines.

    The first is a slice of positive step, or ascending indices. The second puts what was read into the order,
    with repeats, that the caller asked for.
    """
    if isinstance(index, slice):
        asked = range(length)[index]
        if not asked:
            return slice(0, 0), slice(None)
        if asked.step > 0:
            return slice(asked.start, asked.stop, asked.step), slice(None)
        return slice(asked[-1], asked[0] + 1, -asked.step), slice(None, None, -1)
    if not isinstance(index, np.ndarray):
        try:
            place = operator.index(index)
        except TypeError:
            raise IndexError(
                "indices are whole numbers, slices, ..., None, masks, or arrays of whole numbers, not "
                f"{index!r:.60}"
            ) from None
        if not -length <= place < length:
            raise IndexError(f"index {place} is beyond axis {axis}, whose length is {length}")
        return slice(place % length, place % length + 1), 0
    if index.dtype == bool:
        if index.shape != (length,):
            raise IndexError(f"a mask of shape {index.shape} is for axis {axis}, whose length is {length}")
        index = np.flatnonzero(index)
    if not index.size:
        return slice(0, 0), index.astype(np.intp)
    if index.dtype.kind not in "iu":
        raise IndexError(f"an array of indices is of whole numbers or booleans, not of {index.dtype}")
    low, high = int(index.min()), int(index.max())
    if low < -length or high >= length:
        raise IndexError(f"index {low if low < -length else high} is beyond axis {axis}, of length {length}")
    lines, places = np.unique(np.where(index < 0, index + length, index), return_inverse=True)
    return lines.astype(np.int64), places.reshape(index.shape)
