"""Sums of gathered rows that stay in vector registers, written in LLVM's language.

A loop over columns of a block is vectorized only behind a check, for each gathered row, that it does not
overlap the sums, and the sums go to memory and back at every nonzero. Here ``<W x float>`` is written
explicitly: a nonzero is one broadcast, and for each register a multiply-add with an operand in memory.

``SLAB_BYTES`` are eight registers of 32: more would leave no room for the factor, fewer would expose the
latency of a multiply-add. Where a part is narrower, consecutive nonzeros go to sums of their own, so that
eight registers are busy there too. Their number follows from the width alone, never from the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rankfold.kernels._dispatch import CACHE_LINE
from rankfold.kernels.sparse.slabs import SLAB_BYTES

REGISTER, REGISTERS = 32, SLAB_BYTES // 32
AHEAD = 10
"""Nonzeros between one that is added and the one whose row is prefetched: the time of a read from third-level
cache. Rows are prefetched beyond the end of a sum, since the next sum begins there."""

INT64, INT32, BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)

Lanes = tuple[None, ...]
"""A tuple whose length is log2 of a width: so each width is a type, and has a loop, of its own."""


def parts(width: int, dtype: np.dtype[Any]) -> Iterator[tuple[int, Lanes]]:
    """Parts of a block of ``width`` columns: as many of the widest as fit, then powers of two.

    Yields the first column and the width, as ``Lanes``, of each.
    """
    first, widest = 0, SLAB_BYTES // dtype.itemsize
    while first < width:
        logarithm = min(widest, width - first).bit_length() - 1
        yield first, (None,) * logarithm
        first += 2**logarithm


@intrinsic
def store_sum(
    typing: Any,
    lanes: Any,
    indices: Any,
    values: Any,
    start: Any,
    stop: Any,
    end: Any,
    q: Any,
    out: Any,
    row: Any,
    column: Any,
) -> Any:
    """Write ``sum(values[p] * q[indices[p]])`` over ``start <= p < stop`` into row ``row`` of ``out``.

    Only a part of the columns is written: ``lanes`` is its width, and ``column`` its first column in ``q``
    and ``out``, which are in C order and of one type. Rows of ``q`` for nonzeros before ``end`` may be
    prefetched.
    """
    return _code(lanes, indices, values, q, out, _store)


@intrinsic
def add_sum(
    typing: Any,
    lanes: Any,
    indices: Any,
    values: Any,
    start: Any,
    stop: Any,
    end: Any,
    q: Any,
    out: Any,
    row: Any,
    column: Any,
) -> Any:
    """Like ``store_sum``, but the sum is added to row ``row`` of ``out``, a matrix of float64."""
    return _code(lanes, indices, values, q, out, _add)


@intrinsic
def store_dots(
    typing: Any,
    lanes: Any,
    indices: Any,
    start: Any,
    stop: Any,
    end: Any,
    left: Any,
    right: Any,
    out: Any,
    row: Any,
    column: Any,
) -> Any:
    """Write ``left[row] @ right[indices[p]]`` to ``out[p]`` for every ``start <= p < stop``.

    ``lanes`` and ``column`` are the part of the rows that is multiplied, as for ``store_sum``. Halves of the
    vector of products are added until one number is left.
    """
    return _dots_code(lanes, indices, left, right, out, adds=False)


@intrinsic
def add_dots(
    typing: Any,
    lanes: Any,
    indices: Any,
    start: Any,
    stop: Any,
    end: Any,
    left: Any,
    right: Any,
    out: Any,
    row: Any,
    column: Any,
) -> Any:
    """Like ``store_dots``, but the products are added to ``out[p]``."""
    return _dots_code(lanes, indices, left, right, out, adds=True)


@intrinsic
def scatter_row(
    typing: Any,
    lanes: Any,
    indices: Any,
    values: Any,
    start: Any,
    stop: Any,
    end: Any,
    y: Any,
    z: Any,
    row: Any,
    column: Any,
) -> Any:
    """Add ``values[p] * y[row]`` to ``z[indices[p]]``, of float64, for every ``start <= p < stop``.

    ``lanes`` and ``column`` are the part of the rows, as for ``store_sum``.
    """
    int64 = types.int64
    signature = types.void(lanes, indices, values, int64, int64, int64, y, z, int64, int64)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        indices, values, y, z = _arrays(context, builder, signature, arguments, 1, 2, 6, 7)
        start, stop, end = arguments[3:6]
        row, column = arguments[8:10]
        wide = ir.VectorType(ir.DoubleType(), 2 ** len(lanes))
        narrow = ir.VectorType(y.data.type.pointee, 2 ** len(lanes))
        rows = _Rows(builder, indices.data, values.data, lambda row: _element(builder, z, row, column), wide)
        own = builder.bitcast(_element(builder, y, row, column), narrow.as_pointer())
        factor = builder.load(own, align=signature.args[6].dtype.bitwidth // 8)
        factor = factor if narrow == wide else builder.fpext(factor, wide)
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(INT64, 1)) as (position, _):
            rows.scatter(factor, position, end)
        return context.get_dummy_value()

    return signature, generate


def _store(builder: ir.IRBuilder, total: Any, place: Any, size: int) -> None:
    builder.store(total, builder.bitcast(place, total.type.as_pointer()), align=size)


def _add(builder: ir.IRBuilder, total: Any, place: Any, size: int) -> None:
    wide = ir.VectorType(ir.DoubleType(), total.type.count)
    place = builder.bitcast(place, wide.as_pointer())
    total = total if total.type == wide else builder.fpext(total, wide)
    builder.store(builder.fadd(builder.load(place, align=size), total), place, align=size)


def _code(lanes: Any, indices: Any, values: Any, q: Any, out: Any, finish: Callable[..., None]) -> Any:
    """Signature of ``store_sum`` or ``add_sum``, and the function that generates its code.

    Arguments are types of numba; ``finish`` generates the code that stores the sum, or adds it.
    """
    signature = types.void(
        lanes, indices, values, types.int64, types.int64, types.int64, q, out, types.int64, types.int64
    )

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        indices, values, q, out = _arrays(context, builder, signature, arguments, 1, 2, 6, 7)
        vector = ir.VectorType(q.data.type.pointee, 2 ** len(lanes))
        column = arguments[9]
        rows = _Rows(
            builder, indices.data, values.data, lambda row: _element(builder, q, row, column), vector
        )
        total = rows.sum(*arguments[3:6])
        size = signature.args[7].dtype.bitwidth // 8
        finish(builder, total, _element(builder, out, arguments[8], column), size)
        return context.get_dummy_value()

    return signature, generate


def _dots_code(lanes: Any, indices: Any, left: Any, right: Any, out: Any, *, adds: bool) -> Any:
    """Signature of ``store_dots`` or, if ``adds``, ``add_dots``, and the function that generates its code."""
    int64 = types.int64
    signature = types.void(lanes, indices, int64, int64, int64, left, right, out, int64, int64)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        indices, left, right, out = _arrays(context, builder, signature, arguments, 1, 5, 6, 7)
        vector = ir.VectorType(right.data.type.pointee, 2 ** len(lanes))
        start, stop, end = arguments[2:5]
        row, column = arguments[8:10]
        rows = _Rows(builder, indices.data, None, lambda row: _element(builder, right, row, column), vector)
        own = builder.bitcast(_element(builder, left, row, column), vector.as_pointer())
        factor = builder.load(own, align=rows.size)
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(INT64, 1)) as (position, _):
            total = rows.dot(factor, position, end)
            place = builder.gep(out.data, [position])
            builder.store(builder.fadd(builder.load(place), total) if adds else total, place)
        return context.get_dummy_value()

    return signature, generate


def _arrays(
    context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, *positions: int
) -> list[Any]:
    """Structures of the array arguments at ``positions``: each has the address of the data, and the shape."""
    kinds = [signature.args[position] for position in positions]
    return [
        cgutils.create_struct_proxy(kind)(context, builder, arguments[position])  # type: ignore[no-untyped-call]
        for kind, position in zip(kinds, positions, strict=True)
    ]


def _element(builder: ir.IRBuilder, matrix: Any, row: Any, column: Any) -> Any:
    """Address of an element of a matrix in C order."""
    width = builder.extract_value(matrix.shape, 1)
    return builder.gep(matrix.data, [builder.add(builder.mul(row, width), column)])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Generator of the code for rows that nonzeros select, and for their sums.

    ``indices`` and ``values`` are the addresses of arrays with an entry for each nonzero; ``vector`` is the
    LLVM type of the part of a row that is summed.
    """

    builder: ir.IRBuilder
    indices: Any
    values: Any
    row: Callable[[Any], Any]
    """Maps the number of a row to the address of its part that is summed."""
    vector: Any

    @property
    def size(self) -> int:
        """Bytes of an element of ``vector``."""
        return 8 if isinstance(self.vector.element, ir.DoubleType) else 4

    def sum(self, start: Any, stop: Any, end: Any) -> Any:
        """Generate the sum of values times rows over nonzeros from ``start`` to before ``stop``, a vector.

        Nonzero p is added to partial sum (p - start) mod the number of these; the last nonzeros, too few for
        all partial sums, are added to the first one; then these sums are added in pairs.
        """
        build, registers = self.builder, -(-self.vector.count * self.size // REGISTER)
        chains = max(1, REGISTERS // registers)
        zero = ir.Constant(self.vector, [ir.Constant(self.vector.element, 0.0)] * self.vector.count)
        sums = [cgutils.alloca_once_value(build, zero) for _ in range(chains)]  # type: ignore[no-untyped-call]
        step = ir.Constant(INT64, chains)
        whole = build.sub(stop, build.srem(build.sub(stop, start), step))
        with cgutils.for_range_slice(build, start, whole, step) as (first, _):
            for u, total in enumerate(sums):
                position = build.add(first, ir.Constant(INT64, u))
                self._ask(position, end)
                self._add(position, total)
        if chains > 1:
            with cgutils.for_range_slice(build, whole, stop, ir.Constant(INT64, 1)) as (position, _):
                self._ask(position, end)
                self._add(position, sums[0])
        totals = [build.load(total) for total in sums]
        while len(totals) > 1:
            totals = [build.fadd(a, b) for a, b in zip(totals[::2], totals[1::2], strict=True)]
        return totals[0]

    def dot(self, factor: Any, position: Any, end: Any) -> Any:
        """Generate the inner product of the row of the nonzero at ``position`` with vector ``factor``."""
        build, count = self.builder, self.vector.count
        self._ask(position, end)
        row = build.load(build.bitcast(self._address(position), self.vector.as_pointer()), align=self.size)
        products = build.fmul(factor, row)
        while count > 1:
            count //= 2
            halves = [
                ir.Constant(
                    ir.VectorType(INT32, count), [ir.Constant(INT32, first + i) for i in range(count)]
                )
                for first in (0, count)
            ]
            low, high = (build.shuffle_vector(products, products, half) for half in halves)
            products = build.fadd(low, high)
        return build.extract_element(products, ir.Constant(INT32, 0))

    def scatter(self, factor: Any, position: Any, end: Any) -> None:
        """Generate the addition of the value at ``position`` times vector ``factor`` to the selected row."""
        build = self.builder
        self._ask(position, end)
        place = build.bitcast(self._address(position), self.vector.as_pointer())
        total = self._multiply_add(self._value(position), factor, build.load(place, align=self.size))
        build.store(total, place, align=self.size)

    def _address(self, position: Any) -> Any:
        index = self.builder.load(self.builder.gep(self.indices, [position]))
        return self.row(index if index.type == INT64 else self.builder.sext(index, INT64))

    def _add(self, position: Any, total: Any) -> None:
        build = self.builder
        row = build.load(build.bitcast(self._address(position), self.vector.as_pointer()), align=self.size)
        build.store(self._multiply_add(self._value(position), row, build.load(total)), total)

    def _multiply_add(self, value: Any, row: Any, total: Any) -> Any:
        """A scalar times a vector, plus another vector."""
        build, vector = self.builder, self.vector
        name = f"llvm.fmuladd.v{vector.count}f{8 * self.size}"
        signature = ir.FunctionType(vector, [vector] * 3)
        multiply_add = cgutils.get_or_insert_function(build.module, signature, name)  # type: ignore[no-untyped-call]
        unset, first = ir.Constant(vector, ir.Undefined), ir.Constant(INT32, 0)
        everywhere = ir.Constant(ir.VectorType(INT32, vector.count), [first] * vector.count)
        factor = build.shuffle_vector(build.insert_element(unset, value, first), unset, everywhere)
        return build.call(multiply_add, [factor, row, total])

    def _value(self, position: Any) -> Any:
        value, wanted = self.builder.load(self.builder.gep(self.values, [position])), self.vector.element
        if value.type == wanted:
            return value
        return self.builder.fpext(value, wanted) if self.size == 8 else self.builder.fptrunc(value, wanted)

    def _ask(self, position: Any, end: Any) -> None:
        """Generate the prefetch, into first-level cache, of the row of nonzero ``position + AHEAD``.

        If that is not before ``end``, it is the row of nonzero ``position``.
        """
        build = self.builder
        signature = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), INT32, INT32, INT32])
        prefetch = cgutils.get_or_insert_function(build.module, signature, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        ahead = build.add(position, ir.Constant(INT64, AHEAD))
        ahead = build.select(build.icmp_signed("<", ahead, end), ahead, position)
        row = build.bitcast(self._address(ahead), BYTE.as_pointer())
        for line in range(0, self.vector.count * self.size, CACHE_LINE):
            place = build.gep(row, [ir.Constant(INT64, line)])
            build.call(prefetch, [place, ir.Constant(INT32, 0), ir.Constant(INT32, 3), ir.Constant(INT32, 1)])
