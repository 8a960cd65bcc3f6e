"""Bounds of 64 pairs at a time, written in LLVM's language.

A loop that lists which of many numbers are below a limit stores and counts at each of them. Here vectors are
compared, and a processor with masks moves their bits at once; few numbers pass, and only these are visited.
A loop for the least of each of some groups is vectorized only behind checks that arrays do not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64
"""Bits of a mask."""

INT32, INT64, BIT = ir.IntType(32), ir.IntType(64), ir.IntType(1)


def _mask_below(typing: Any, row: Any, others: Any, limits: Any, start: Any, other: Any, limit: Any) -> Any:
    """Mask of 64 pairs: bit t is ``others[j] + other - row[j] < max(limit, limits[j])`` at j = start + t.

    ``row`` is inner products of a row with others; ``others`` and ``other`` are terms of these and of the
    row in lower bounds of distances; ``limits`` and ``limit`` are what a bound must be below. All are of one
    type of floating point numbers, and arrays are contiguous.
    """
    signature = types.uint64(row, others, limits, types.int64, row.dtype, row.dtype)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, signature, arguments)
        bounds = code.bounds(3, 4)
        one = builder.fcmp_ordered("<", bounds, code.everywhere(arguments[5]))
        either = builder.or_(one, builder.fcmp_ordered("<", bounds, code.lanes(2, arguments[3])))
        return builder.bitcast(either, INT64)

    return signature, generate


def _keep_least(typing: Any, row: Any, others: Any, least: Any, at: Any, start: Any, other: Any) -> Any:
    """Lower ``least[at + t]`` to ``others[j] + other - row[j]`` at j = start + t, for all 64 lanes t.

    What is lower already stays. ``row``, ``others`` and ``other`` are as for ``_mask_below``. All are of one
    type of floating point numbers, and arrays are contiguous.
    """
    signature = types.void(row, others, least, types.int64, types.int64, row.dtype)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, signature, arguments)
        bounds, before = code.bounds(4, 5), code.lanes(2, arguments[3])
        lower = builder.select(builder.fcmp_ordered("<", bounds, before), bounds, before)
        builder.store(lower, code.place(2, arguments[3]), align=code.size)
        return context.get_dummy_value()

    return signature, generate


def _lowest_bit(typing: Any, mask: Any) -> Any:
    """Position of the lowest bit of a mask that is set."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(BIT, 1))

    return types.int64(types.uint64), generate


# To be called without the first argument, which numba passes itself.
mask_below: Any = intrinsic(_mask_below)
keep_least: Any = intrinsic(_keep_least)
lowest_bit: Any = intrinsic(_lowest_bit)


@dataclass(frozen=True, slots=True)
class _Code:
    """Generator of the code of an intrinsic, whose methods return LLVM values.

    The first three arguments of the intrinsic are arrays: inner products of a row with others, terms of the
    others in lower bounds of distances (see ``bounds.near``), and one more.
    """

    context: Any
    builder: ir.IRBuilder
    signature: Any
    arguments: Any

    @property
    def vector(self) -> Any:
        """Type of a vector of ``LANES`` elements."""
        return ir.VectorType(self.context.get_value_type(self.signature.args[0].dtype), LANES)

    @property
    def size(self) -> int:
        """Bytes of an element of the arrays."""
        return int(self.signature.args[0].dtype.bitwidth // 8)

    def place(self, array: int, start: Any) -> Any:
        """Address of ``LANES`` elements, from ``start`` on, of the array at argument ``array``."""
        kind, value = self.signature.args[array], self.arguments[array]
        data = cgutils.create_struct_proxy(kind)(self.context, self.builder, value).data  # type: ignore[no-untyped-call]
        return self.builder.bitcast(self.builder.gep(data, [start]), self.vector.as_pointer())

    def lanes(self, array: int, start: Any) -> Any:
        """Vector of ``LANES`` elements, from ``start`` on, of the array at argument ``array``."""
        return self.builder.load(self.place(array, start), align=self.size)

    def everywhere(self, value: Any) -> Any:
        """Vector that holds ``value`` in all lanes."""
        unset, first = ir.Constant(self.vector, ir.Undefined), ir.Constant(INT32, 0)
        lanes = ir.Constant(ir.VectorType(INT32, LANES), [first] * LANES)
        return self.builder.shuffle_vector(self.builder.insert_element(unset, value, first), unset, lanes)

    def bounds(self, start: int, other: int) -> Any:
        """Vector of lower bounds, in halves as in ``lists.py``, of distances of a row from ``LANES`` others.

        A bound is the term of the row, plus the term of the other row, less their product. ``start`` and
        ``other`` are positions of arguments of the intrinsic: the first of the others, and the row's term.
        """
        at = self.arguments[start]
        own = self.everywhere(self.arguments[other])
        return self.builder.fsub(self.builder.fadd(own, self.lanes(1, at)), self.lanes(0, at))
