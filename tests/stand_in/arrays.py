"""Arrays of the stand-in: the memory is NumPy's, and NumPy is not let near it."""

from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from stand_in.streams import COUNTS, Stream, current_stream

UFUNC_ARGUMENTS = {"out", "dtype", "casting"}
COUNTING = {"nonzero", "flatnonzero", "argwhere", "unique", "extract", "compress"}
"""Functions whose results have a length that only the device knows."""

METHODS = """
    all any argmax argmin argsort astype clip copy cumprod cumsum diagonal dot max mean min prod ravel repeat
    round squeeze std sum take trace transpose var
"""


class OutOfMemoryError(MemoryError):
    """CuPy's, above the limit of its pool."""


class ndarray(NDArrayOperatorsMixin):
    """An array on the device."""

    __slots__ = ("__weakref__", "_memory", "_owner")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ):
        _take(self, np.empty(shape, dtype, order), None)  # type: ignore[call-overload]
        spoil(self._memory)

    # What NumPy asks of it -------------------------------------------------------------------------

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        require_known(
            ufunc.__name__, kwargs, UFUNC_ARGUMENTS | ({"axis", "keepdims"} if method == "reduce" else set())
        )
        out = kwargs.pop("out", (None,))[0]
        if out is not None:
            require_device(out)
            kwargs["out"] = out._memory
        if method not in ("__call__", "at", "outer", "reduce"):
            raise TypeError(f"cupy.{ufunc.__name__} has no {method}")
        values = [inside(each) for each in inputs]
        with np.errstate(all="ignore"):
            found = getattr(ufunc, method)(*values, **kwargs)
        return out if out is not None else outside(found)

    def __array_function__(self, function: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        module = function.__module__.removeprefix("numpy").removeprefix(".")
        return call(function, f"{module}.{function.__name__}".lstrip("."), args, kwargs)

    # Numbers that are looked at --------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(_look(self))

    def __float__(self) -> float:
        return float(_look(self))

    def __int__(self) -> int:
        return int(_look(self))

    def __index__(self) -> int:
        return operator.index(_look(self))

    def item(self, *args: Any) -> Any:
        """One number, on the host."""
        return _look(self).item(*args)

    def tolist(self) -> Any:
        """All numbers, on the host."""
        return _look(self).tolist()

    # Copies ------------------------------------------------------------------------------------------

    def get(
        self, stream: Stream | None = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        """To the host."""
        host = np.empty(self.shape, self.dtype, order) if out is None else out  # type: ignore[call-overload]
        if not isinstance(host, np.ndarray) or host.shape != self.shape or host.dtype != self.dtype:
            raise ValueError(f"out has another shape or type than {self.shape} {self.dtype}")
        if out is not None and not (self._memory.flags.forc and host.flags.forc):
            raise RuntimeError("a copy into an array is of contiguous arrays, on both sides")
        COUNTS.down += self.nbytes
        spoil(host)
        here, copies = stream or current_stream(), list[Any]()
        here.enqueue(lambda: copies.append(self._memory.copy()))
        here.arrive(lambda: np.copyto(host, copies[0]))
        if blocking:
            here.synchronize()
        return host

    def set(self, arr: Any, stream: Stream | None = None) -> None:
        """From the host."""
        if not isinstance(arr, np.ndarray) or arr.shape != self.shape or arr.dtype != self.dtype:
            raise ValueError(f"an array of {self.shape} {self.dtype} is set from another shape or type")
        if not self._memory.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        COUNTS.up += self.nbytes
        spoil(self._memory)
        (stream or current_stream()).enqueue(lambda: np.copyto(self._memory, arr))

    # What it is --------------------------------------------------------------------------------------

    shape = property(lambda self: self._memory.shape)
    dtype = property(lambda self: self._memory.dtype)
    ndim = property(lambda self: self._memory.ndim)
    size = property(lambda self: self._memory.size)
    nbytes = property(lambda self: self._memory.nbytes)
    itemsize = property(lambda self: self._memory.itemsize)
    strides = property(lambda self: self._memory.strides)
    flags = property(lambda self: self._memory.flags)
    T = property(lambda self: _part(self, self._memory.T))
    data = property(lambda self: types.SimpleNamespace(ptr=self._memory.ctypes.data))

    def __len__(self) -> int:
        return len(self._memory)

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<array on the device, {self.shape} {self.dtype}>"

    def __getitem__(self, key: Any) -> ndarray:
        return _part(self, np.asarray(self._memory[_key(key)]))

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, list | tuple):
            raise TypeError(f"Unsupported type {type(value)}")
        with np.errstate(all="ignore"):
            self._memory[_key(key)] = inside(value)

    def view(self, dtype: Any = None) -> ndarray:
        """The same memory, as another type."""
        return _part(self, self._memory.view(dtype or self.dtype))

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        """The same numbers, in another shape."""
        return _part(self, self._memory.reshape(*shape, order=order))

    def fill(self, value: Any) -> None:
        """One number everywhere."""
        self._memory.fill(inside(value))


def _method(name: str) -> Callable[..., Any]:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        values = [inside(each) for each in args], {key: inside(each) for key, each in kwargs.items()}
        if kwargs.get("out") is not None:
            require_device(kwargs["out"])
        with np.errstate(all="ignore"):
            found = getattr(self._memory, name)(*values[0], **values[1])
        if found is self._memory:  # astype without a copy
            return self
        return _part(self, found) if np.may_share_memory(found, self._memory) else outside(found)

    return method


for _name in METHODS.split():
    setattr(ndarray, _name, _method(_name))
ndarray.__module__ = "cupy"  # by which arrays of a device are known


def _look(array: ndarray) -> Any:
    COUNTS.waits += 1
    COUNTS.down += array.nbytes
    return array._memory


def _key(key: Any) -> Any:
    keys = key if isinstance(key, tuple) else (key,)
    COUNTS.waits += sum(isinstance(each, ndarray) and each.dtype == np.bool_ for each in keys)
    return tuple(inside(each) for each in keys)


# Between the two sides ------------------------------------------------------------------------------


def _take(array: ndarray, memory: Any, owner: ndarray | None) -> ndarray:
    object.__setattr__(array, "_memory", memory)
    object.__setattr__(array, "_owner", owner)
    if owner is None:
        with COUNTS.lock:
            if COUNTS.limit and COUNTS.bytes_now + memory.nbytes > COUNTS.limit:
                raise OutOfMemoryError(
                    f"Out of memory allocating {memory.nbytes:,} bytes (allocated so far: "
                    f"{COUNTS.bytes_now:,} bytes, limit set to: {COUNTS.limit:,} bytes)."
                )
            COUNTS.bytes_now += memory.nbytes
            COUNTS.bytes_most = max(COUNTS.bytes_most, COUNTS.bytes_now)
        weakref.finalize(array, _release, memory.nbytes, COUNTS.stand_in)
    return array


def _release(nbytes: int, stand_in: int) -> None:
    with COUNTS.lock:
        if COUNTS.stand_in == stand_in:  # else an array of an earlier one, which is not counted any more
            COUNTS.bytes_now -= nbytes


def _part(array: ndarray, memory: Any) -> ndarray:
    """What shares memory with an array belongs to it."""
    shares = np.may_share_memory(memory, array._memory)
    return _take(ndarray.__new__(ndarray), memory, array if shares else None)


def outside(value: Any) -> Any:
    """Results as arrays of the device, numbers too, as CuPy gives them."""
    if isinstance(value, np.ndarray | np.generic):
        return _take(ndarray.__new__(ndarray), np.asarray(value), None)
    return tuple(outside(each) for each in value) if isinstance(value, tuple | list) else value


def inside(value: Any) -> Any:
    """The memory of arrays of the device; those of the host are refused."""
    if isinstance(value, ndarray):
        return value._memory
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, tuple | list):
        return type(value)(inside(each) for each in value)
    return value


def require_device(value: Any) -> None:
    """Raise for what is not an array of the device."""
    if not isinstance(value, ndarray):
        raise TypeError(f"return arrays must be of ArrayType, not {type(value)}")


def spoil(memory: Any) -> None:
    """Fill with what nobody can take for a result."""
    if memory.dtype.kind in "fc":
        memory.fill(np.nan)
    elif memory.dtype.kind in "iu":
        memory.fill(np.iinfo(memory.dtype).max // 3)
    else:
        memory.fill(True)


def require_known(name: str, kwargs: Any, arguments: set[str] | None) -> None:
    """Raise for a name, or an argument of it, that CuPy does not know."""
    from stand_in.library import known_arguments

    known = known_arguments(name) if arguments is None else arguments
    if known_arguments(name) is None:
        raise TypeError(f"CuPy has no {name}")
    unknown = {key for key, value in kwargs.items() if value is not None} - (known or set())
    if known is not None and "kwargs" not in known and unknown:
        raise TypeError(f"cupy.{name} does not take {sorted(unknown)}")


def call(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """A function of NumPy as CuPy carries it out."""
    require_known(name, kwargs, None)
    if name == "einsum" and (more := kwargs.keys() - {"dtype", "optimize"}):
        raise TypeError(f"Did not understand the following kwargs: {sorted(more)}")
    if name == "einsum" and any(
        isinstance(x, ndarray) and x.dtype != kwargs.get("dtype", x.dtype) for x in args
    ):
        raise MemoryError("CuPy would copy each operand into the type that is asked for")
    out = kwargs.get("out")
    if out is not None:
        require_device(out)
    COUNTS.waits += name.rpartition(".")[2] in COUNTING or (name == "where" and len(args) == 1)
    values = [inside(each) for each in args], {key: inside(each) for key, each in kwargs.items()}
    with np.errstate(all="ignore"):
        found = function(*values[0], **values[1])
    if name.startswith("empty"):
        spoil(found)
    if out is not None:
        return out
    for each in args:
        if (
            isinstance(each, ndarray)
            and isinstance(found, np.ndarray)
            and np.may_share_memory(found, each._memory)
        ):
            return _part(each, found)
    return outside(found)
