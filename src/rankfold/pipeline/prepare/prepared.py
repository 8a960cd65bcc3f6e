"""A matrix whose values go through preparation steps whenever they are read; the output is never written.

Rows are read whole if a step needs the other values of a row, such as their sum. The matrix is then read by
rows even if it is wide. Measurements that steps need are made when the matrix is opened, each by a read, and
kept in results. A sparse matrix stays sparse if its zeros stay zeros, or become one value for each column,
the ``shift`` (n,): it may be left out of all rows where means are subtracted anyway.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import scratch
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.dtypes import note_digits
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.index_selection import Selection, pick
from rankfold.pipeline.data.selection import Readable, select
from rankfold.pipeline.data.source import (
    CompressedSource,
    Csr,
    SamePlaces,
    Source,
    Wrapper,
    compressed,
    require_compressed,
    require_rows,
    row_marks,
    sum_places,
)
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.errors import DataError, InputError, RankfoldError
from rankfold.pipeline.law import REMEDY, first_outside
from rankfold.pipeline.prepare.chosen_columns import TakeColumns
from rankfold.pipeline.prepare.gaps import CompleteRows
from rankfold.pipeline.prepare.parse import Steps, in_words, parse_steps
from rankfold.pipeline.prepare.steps import Numbers, Step

Array = npt.NDArray[Any]
Fitted = Mapping[str, Array]

BLOCK_BYTES = 2**20
"""Bytes of rows in the working type, at least one row, that go through the steps together."""

TEMPORARIES = 6
"""Largest number of float64 arrays of the size of such a block that steps allocate in addition."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PreparedSource(Readable, SamePlaces):
    """A matrix after some preparation steps, in the working type (float32 or float64, or complex)."""

    inner: Source
    steps: tuple[Step, ...]
    said: Steps
    """All steps that made it, with the parameters of the caller, including those within ``inner``."""

    fitted: Fitted = field(default_factory=dict)
    """Arrays measured for the steps ``said``, by names such as ``prepare_1_scale_mean``.

    The number is that of the step in ``said``, from 1 on.
    """

    @property
    def name(self) -> str:
        """Name of the matrix in messages, with the steps."""
        inner: Any = self.inner
        while isinstance(inner, Wrapper) and not isinstance(inner, PreparedSource):
            inner = inner.inner
        earlier = len(inner.said) if isinstance(inner, PreparedSource) else 0
        said = _shown(self.said[earlier:])
        return f"{self.inner.name} [{said}]" if said else self.inner.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 if it holds the stored type exactly, else float64; complex types stay."""
        return self.inner.dtype if self.inner.dtype.kind == "c" else working_dtype(self.inner.dtype)

    @property
    def format(self) -> str:
        """Kind of store, such as a file format, and the steps."""
        kind = str(getattr(self.inner, "format", type(self.inner).__name__))
        return ", ".join(filter(None, (kind, _shown(self.said))))

    @property
    def column_grid(self) -> Grid:
        """Chunks along the columns; marked as scattered if steps need whole rows."""
        grid = self.inner.column_grid
        return Grid(grid.cuts, grid.splittable, scattered=True) if self.takes_rows else grid

    @property
    def takes_rows(self) -> bool:
        """True if a step needs whole rows, such as one that divides by their sum."""
        return any(step.by_row for step in self.steps)

    @property
    def shift(self) -> Array | None:
        """Value (n,) that 0 becomes in each column; None if zero stays zero."""
        shifts = (getattr(step, "shift", None) for step in self.steps)
        return next((shift for shift in shifts if shift is not None), None)

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        count, read = rows[1] - rows[0], (0, self.shape[1]) if self.takes_rows else columns
        width = read[1] - read[0]
        if not count or columns[0] >= columns[1]:
            return
        raw_dtype = self.inner.dtype
        # ``inner`` may be prepared too, and use its own buffer while this one is filled.
        purpose = f"unprepared {len(self.said)}"
        raw = scratch.get(purpose, count * width * raw_dtype.itemsize).view(raw_dtype).reshape(count, width)
        self.inner.read_into(raw, rows, read)
        note_digits(self.name, raw)
        step = max(1, BLOCK_BYTES // (width * self.dtype.itemsize))
        for top in range(0, count, step):
            block = raw[top : top + step].astype(self.dtype)
            self._apply(Numbers(block, first=read[0], top=rows[0] + top))
            out[top : top + step] = block[:, columns[0] - read[0] : columns[1] - read[0]]

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes of one ``read_into`` in addition to ``out``.

        That is what the matrix takes, raw values, and temporary arrays of steps.
        """
        width = self.shape[1] if self.takes_rows else columns
        # Buffers of a thread are an eighth larger than what was asked for.
        raw = rows * width * self.inner.dtype.itemsize * 9 // 8
        numbers = max(BLOCK_BYTES // self.dtype.itemsize, width)
        kept = sum(getattr(step, "kept_bytes", 0) for step in self.steps)
        return self.inner.read_bytes(rows, width) + raw + TEMPORARIES * 8 * numbers + kept

    def fingerprint(self) -> str:
        """Digest of the matrix and of the steps; columns that were chosen among ties are part of it.

        Other measurements follow from matrix and steps. Steps that a run fits are left out, since they follow
        from its request.
        """
        said = tuple(step for step in self.said if not getattr(step, "of_run", False))
        if len(said) == len(steps_of(self.inner)):
            return self.inner.fingerprint()
        text = f"{self.inner.fingerprint()} {in_words(said)}"
        for place, step in enumerate(said, 1):
            if getattr(step, "may_tie", False):
                columns = self.fitted[f"prepare_{place}_{step.name}_columns"]
                text += f" {hashlib.blake2b(columns.astype('<i8').tobytes(), digest_size=8).hexdigest()}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` rows of a matrix that grows have changed.

        Raises ``InputError`` if a step was measured on all rows, since new rows would change it.
        """
        if self.fitted:
            raise InputError(
                f"{self.name} went through steps that are measured on all rows, so that each new row changes "
                "the earlier ones: leave out grows, or take steps of a row alone, such as log1p"
            )
        return row_marks(self.inner, rows).beside(in_words(self.said))

    def _apply(self, numbers: Numbers) -> None:
        """Apply the steps to values in place, in order."""
        for step in self.steps:
            step.apply(numbers)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PreparedSparse(PreparedSource):
    """A sparse matrix after some steps, which change only its stored values.

    If steps map zeros to other values, ``shift`` (n,), these are subtracted from every row, so that zeros
    stay.
    """

    @property
    def _stored(self) -> CompressedSource:
        return require_compressed(self.inner)

    @property
    def by(self) -> str:
        """``rows`` or ``columns``: the compressed axis, whose lines are contiguous."""
        return self._stored.by

    @property
    def nnz(self) -> int:
        """Number of stored values."""
        return self._stored.nnz

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """Number of stored values before each line from ``top`` to ``bottom``; see ``CompressedSource``."""
        return self._stored.pointers(top, bottom)

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        PreparedSource.read_into(self, out, rows, columns)
        if self.shift is not None:
            out -= self.shift[columns[0] : columns[1]].astype(out.dtype)

    def read_sparse(self, lines: Span) -> Csr:
        """Read lines (rows, or columns if ``by`` says so) as CSR, without duplicates, after the steps."""
        stored, by_columns = self._stored.read_sparse(lines), self.by == "columns"
        across = self.shape[0 if by_columns else 1]
        stored = sum_places(dataclasses.replace(stored, data=stored.data.astype(self.dtype)), across)
        first, most = 0, BLOCK_BYTES // self.dtype.itemsize
        pointers = stored.indptr.astype(np.int64)
        while first < len(pointers) - 1:
            last = int(np.searchsorted(pointers, pointers[first] + most, side="right")) - 1
            last = max(first + 1, last)
            part = pointers[first : last + 1]
            here = slice(part[0], part[-1])
            line = lines[0] + first
            self._apply(Numbers(stored.data[here], by_columns, line, stored.indices[here], np.diff(part)))
            first = last
        return stored

    def sparse_bytes(self, numbers: int) -> int:
        """Upper bound on the bytes that ``read_sparse`` of so many entries takes besides its result.

        That is what the matrix takes, raw values, sorted copies, and temporary arrays of steps.
        """
        lines = self.shape[0 if self.by == "rows" else 1]
        copies = numbers * (self.inner.dtype.itemsize + self.dtype.itemsize + 16)
        most = max(BLOCK_BYTES // self.dtype.itemsize, self.shape[1 if self.by == "rows" else 0])
        return self._stored.sparse_bytes(numbers) + copies + TEMPORARIES * 8 * most + 8 * (lines + 1)


# Making them --------------------------------------------------------------------------------------


def prepare_source(source: Source, steps: Steps, fitted: Fitted | None = None) -> Source:
    """The matrix after some steps; itself if there are none.

    Parameters
    ----------
    source : Source
    steps : tuple
        Steps from ``parse_steps``.
    fitted : mapping of arrays, optional
        Measurements of another matrix, such as that of a fit, to use in place of measuring this one.

    Raises
    ------
    InputError
        A step needs whole rows, but the matrix is compressed by columns.
    """
    said, known = (source.said, dict(source.fitted)) if isinstance(source, PreparedSource) else ((), {})
    for step in steps:
        found: dict[str, Array] = {}
        if hasattr(step, "measure"):
            prefix = f"prepare_{len(said) + 1}_{step.name}_"
            found = step.measure(source) if fitted is None else _given(fitted, prefix)
            known |= {prefix + name: np.asarray(values) for name, values in found.items()}
            change = step.of_source(found, source) if hasattr(step, "of_source") else step.fitted(found)
        else:
            change = step
        said = (*said, step)
        if change is None:
            width = int(found["of"][0])
            if source.shape[1] != width:
                raise InputError(
                    f"{source.name} has {source.shape[1]} columns, and {step.name} chose among {width}. Give "
                    "rows with the columns that there were before"
                )
            columns = np.asarray(found["columns"])
            if (wrong := first_outside(columns, 0, width - 1)) is not None:
                raise DataError(
                    f"the columns that {step.name} chose among {width} are damaged: number {wrong} is "
                    f"{columns[wrong]}. {REMEDY}"
                )
            source = _prepared(select(source, rows=None, columns=columns), (), said, known)
        elif isinstance(source, PreparedSource) and not _fills_zeros(source.steps):
            source = _prepared(source.inner, (*source.steps, change), said, known)
        else:
            source = _prepared(source, (change,), said, known)
    return source


def _prepared(inner: Source, steps: tuple[Step, ...], said: Steps, fitted: Fitted) -> PreparedSource:
    """The matrix ``inner`` after some steps: a ``PreparedSparse`` if it is sparse and the steps keep zeros.

    ``said`` and ``fitted`` as in ``PreparedSource``.
    """
    real = next((step.name for step in steps if not getattr(step, "takes_complex", False)), None)
    if inner.dtype.kind == "c" and real is not None:
        raise InputError(
            f"{inner.name} holds {inner.dtype}, and {real} is for real numbers. Give the real part"
        )
    kind = PreparedSource if compressed(inner) is None or _fills_zeros(steps) else PreparedSparse
    prepared = kind(inner, steps, said, dict(fitted))
    by_row = next((step.name for step in steps if step.by_row), None)
    if by_row is not None:
        require_rows(inner, f"and {by_row} needs whole rows")
    return prepared


def _shown(said: Steps) -> str:
    """Text of steps, without those that the name of the matrix already shows."""
    return in_words(tuple(step for step in said if getattr(step, "in_name", True)))


def _fills_zeros(steps: tuple[Step, ...]) -> bool:
    """True if a step maps zeros to other values."""
    return any(
        getattr(step, "shift", None) is not None or getattr(step, "fills_zeros", False) for step in steps
    )


def complete_source(source: Source, said: Any, step: CompleteRows, found: Fitted) -> PreparedSource:
    """The matrix after one more step, which completes missing values by a model of low rank.

    Parameters
    ----------
    source : Source
    said : ImputeLowRank
        The step as a result names it.
    step : CompleteRows
        The step that is applied, with the model that a run fitted, or a blank one for a plan.
    found : mapping of arrays
        Arrays of the model, which the result keeps.
    """
    known = {f"prepare_{len(steps_of(source)) + 1}_{said.name}_{name}": v for name, v in found.items()}
    fitted = {**fitted_of(source), **known}
    # Not joined with other steps, so that their images of zero are never left out.
    return _prepared(source, (step,), (*steps_of(source), said), fitted)


def steps_of(source: Source) -> Steps:
    """Steps that a matrix went through, with the parameters that a caller gave; empty for none."""
    return source.said if isinstance(source, PreparedSource) else ()


def _given(fitted: Fitted, prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): np.asarray(v) for name, v in fitted.items() if name.startswith(prefix)}


def select_prepared(source: PreparedSource, *, rows: Selection, columns: Selection) -> Source:
    """Select rows and columns of a prepared matrix; the part keeps its steps and their measurements.

    A selection of columns becomes one more step: new rows go through it too, from all original columns.
    """
    prepared: Source = source
    picks = pick(columns, source.shape[1], what="column", name=source.name)
    if picks is not None:
        prepared = prepare_source(prepared, (TakeColumns(picks.places()),))
    if rows is None:
        return prepared
    said, fitted = prepared.said, prepared.fitted  # type: ignore[attr-defined]
    return _prepared(select(prepared, rows=rows, columns=None), (), said, fitted)


def without_shift(source: Source) -> Source:
    """A matrix that stays sparse, since ``shift``, the values that zeros become, is subtracted from each row.

    This is for callers that subtract column means anyway. Other matrices are returned as they are.
    """
    if not isinstance(source, PreparedSource):
        return source
    if any(step.name == "sample_weight" and step.center for step in source.said):
        raise InputError(
            "sample_weight takes the weighted mean off already, and the mean of weighted rows would be "
            "another: say center=False (--no-center), or svd"
        )
    if source.shift is None or compressed(source.inner) is None:
        return source
    return PreparedSparse(source.inner, source.steps, source.said, source.fitted)


def lacks_row_weights(source: Source) -> bool:
    """True if a matrix went through ``sample_weight`` as new rows of a result, without weights of its own."""
    said = source.said if isinstance(source, PreparedSource) else ()
    return any(step.name == "sample_weight" and step.values is None for step in said)


def shift_of(source: Source) -> Array | None:
    """Vector (n,) that ``without_shift`` subtracted from each row of a matrix; None if it did not."""
    return source.shift if isinstance(source, PreparedSparse) else None


# In results ---------------------------------------------------------------------------------------


def described(source: Source) -> dict[str, str]:
    """``{"prepare": text}`` with the text of the steps of a matrix, for its result; empty without steps."""
    said = steps_of(source)
    return {"prepare": in_words(said)} if said else {}


def fitted_of(source: Source) -> Fitted:
    """Arrays measured for the steps of a matrix, by name, which a result keeps; empty for none."""
    return source.fitted if isinstance(source, PreparedSource) else {}


def prepare_like(source: Source, steps: str | None, fitted: Fitted) -> Source:
    """The matrix after the ``steps`` of a result, with the measurements ``fitted`` that the result keeps.

    It is returned as it is if it went through them already.

    Raises
    ------
    InputError
        It went through other steps, or through the same ones measured on itself.
    """
    own = described(source).get("prepare")
    if own is None:
        return source if steps is None else _prepared_as(source, steps, fitted)
    measured = fitted_of(source)
    both = measured.keys() & fitted.keys()  # earlier versions measured less
    alike = all(np.array_equal(measured[name], fitted[name], equal_nan=True) for name in both)
    if own == steps and alike and (both or not measured):
        return source
    words = steps or "no steps"
    told = f", and this one went through {own}" if own != steps else ", which were measured anew on this one"
    raise InputError(
        f"the result is of a matrix after {words}{told}. Open it without prepare: the steps of the result "
        "are taken, with what was measured for them"
    )


def _prepared_as(source: Source, steps: str, fitted: Fitted) -> Source:
    """The matrix after the steps of a result; ``DataError`` if their text or measured arrays are damaged."""
    try:
        parsed = parse_steps(steps)
    except InputError as error:
        raise DataError(f"the steps that a result names are damaged: {error}. {REMEDY}") from error
    try:
        return prepare_source(source, parsed, fitted)
    except RankfoldError:
        raise
    except (KeyError, IndexError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise DataError(
            f"what the steps {steps} measured for a result is damaged ({what}). {REMEDY}"
        ) from error
