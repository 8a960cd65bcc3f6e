"""Methods by which every result is exported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankfold.pipeline.exporting.outcome import Outcome
from rankfold.pipeline.exporting.plots.coordinates import Plottable


class Exports:
    """Methods that export a result to other libraries."""

    __slots__ = ()

    def to_anndata(
        self: Outcome,
        cells: Any,
        *,
        key_added: str | None = None,
        overwrite: bool = False,
        in_place: bool = False,
    ) -> Any:
        """Put the result into an AnnData object, or into a ``.h5ad`` file or a Zarr store, by scanpy's names.

        Parameters
        ----------
        cells : AnnData or path
            Object, or path of a file or store, with the observations and variables of the matrix before any
            were selected. Rows and columns go where it has their names, in any order; without names, to the
            indices that they had in the matrix. ``X`` is not read.
        key_added : str, optional
            Name to use in place of ``X_pca``, ``PCs``, ``pca``, and the like.
        overwrite : bool
            True to replace elements of these names. Without it, in a file or store those of the same result
            are left as they are.
        in_place : bool
            True to change a ``.h5ad`` file itself. By default a copy is changed, and replaces the file once
            it is complete, so that a kill leaves the file as it was.

        Returns
        -------
        AnnData or Path
            ``cells``, or its path.

        Raises
        ------
        InputError
            Other numbers of observations or variables; a kind of result that has no place there.
        OutputError, DiskSpaceError
            Such elements exist, the file is open elsewhere, no room for a copy.

        Notes
        -----
        Distances and connectivities of ``knn`` are made in memory, some 50 bytes for each neighbor of each
        row; coordinates go into a file chunk by chunk.
        """
        from rankfold.pipeline.exporting.cell_files import write_into
        from rankfold.pipeline.exporting.cells import Cells, annotate, cells_of, look_into
        from rankfold.pipeline.formats.arrays import axes_of_cells

        if hasattr(cells, "obsm"):
            taking = Cells("the AnnData object", axes_of_cells(cells, cells.shape), look_into(cells))
            annotate(cells, cells_of(self, taking, key_added), overwrite=overwrite)
            return cells
        path = Path(cells)
        write_into(path, self, key_added, overwrite=overwrite, in_place=in_place)
        return path

    def to_xarray(self: Outcome, like: Any = None, *, physical: bool = False) -> Any:
        """All arrays as an ``xarray.Dataset`` with the axes of the data; ``mode`` counts components from 1.

        Parameters
        ----------
        like : DataArray or path, optional
            The data that the result was made of, for all of its coordinates; their values are not read. Or
            the path of it, such as ``"sst.nc::sst"``, ``"years/*.nc::sst"`` or ``"STORE.zarr::sst"``.
            Without it the dataset has the coordinates of axes, units and names that the result has kept.
        physical : bool
            True to undo in ``mean`` and ``components`` (``Vt`` of an svd) what ``prepare``, ``scale`` and
            ``whiten`` did, so that mean + scores times components are the data in their units. An ``svd``
            gets a ``mean`` where steps subtracted one.

        Returns
        -------
        xarray.Dataset
            In memory. Axes that were stacked are unstacked; what was left out is NaN.

        Raises
        ------
        InputError
            ``like`` has other axes or lengths; with ``physical`` the data went through other steps too.
        """
        from rankfold.pipeline.exporting.fields import dataset_of, opened_like

        with opened_like(self, like) as data:
            dataset = dataset_of(self, data, physical=physical)
            return dataset if data is like else dataset.load()

    def to_netcdf(
        self: Outcome,
        path: str | os.PathLike[str],
        like: Any = None,
        *,
        physical: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Write what ``to_xarray`` returns as a netCDF file, which appears once it is complete.

        ``like`` and ``physical`` are those of ``to_xarray``. ``overwrite`` permits to replace a file that
        rankfold wrote. Of large arrays some rows are in memory at a time, where rows lie along one axis.
        Returns the path of the file.
        """
        from rankfold.pipeline.exporting.fields import (
            dataset_of,
            opened_like,
            variable_in_blocks,
            write_netcdf,
        )

        with opened_like(self, like) as data:
            dataset = dataset_of(self, data, physical=physical, variable=variable_in_blocks)
            return write_netcdf(dataset, Path(path), overwrite=overwrite)

    def to_pandas(self: Outcome, name: str | None = None, like: Any = None) -> Any:
        """An array of the result as a ``pandas.DataFrame``.

        ``name`` is that of the array; by default it is that of coordinates of the rows. ``like`` is the frame
        of the data: its index names rows, its columns name columns. Components have one row for each column
        of the data.
        """
        from rankfold.pipeline.exporting.frames import pandas_frame

        return pandas_frame(self, name, like)

    def to_polars(self: Outcome, name: str | None = None) -> Any:
        """An array of the result as a ``polars.DataFrame``, with names of rows or columns as first columns.

        ``name`` is that of the array; by default it is that of coordinates of the rows. Components have one
        row for each column of the data.
        """
        from rankfold.pipeline.exporting.frames import polars_frame

        return polars_frame(self, name)

    def to_table(
        self: Outcome, path: str | os.PathLike[str], name: str | None = None, *, overwrite: bool = False
    ) -> Path:
        """Write an array as a ``.csv``, ``.tsv`` or ``.parquet`` file, with names of rows or columns.

        ``name`` is that of the array; by default it is that of coordinates of the rows. Components have a
        line for each column of the data. The file appears once it is complete; ``overwrite`` permits to
        replace one that rankfold wrote. Returns its path.
        """
        from rankfold.pipeline.exporting.frames import write_table

        return write_table(self, Path(path), name, overwrite=overwrite)

    def plot(
        self: Plottable,
        kind: str = "auto",
        *,
        components: Sequence[int] | int | None = None,
        color: Any = None,
        view: tuple[float, float] | None = None,
        names: Any = None,
        ax: Any = None,
        out: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
    ) -> Any:
        """Draw the result: a figure of matplotlib is returned, and written to ``out`` if that is given.

        Parameters
        ----------
        kind : str
            ``patterns`` (maps of components with their series, of a field over time), ``maps`` (components
            as maps), ``series`` (coordinates of rows over time), ``scatter`` (rows by coordinates), ``scree``
            (singular values), ``loadings`` (components by columns), ``sizes``, ``inertia`` (of clusters),
            ``degrees`` (of a graph); or what suits best.
        components : int, or sequence of int
            Components to draw, counted from 1: up to three in ``scatter``, else up to 12.
        color : array-like or path
            For ``scatter``: labels or values of the rows, or their path, as ``"clusters.zarr::labels"``.
        view : (float, float)
            Elevation and azimuth of the viewpoint in degrees, for three coordinates.
        names : array-like or path
            Names of the columns of the matrix, for ``loadings``.
        ax : matplotlib Axes
            Axes to draw into, in place of a new figure.
        out, overwrite : path, bool
            A ``.png`` or ``.svg`` file to write, and True to replace another rankfold picture of that name.
            The picture of the same call for the same result is always replaced.

        Raises
        ------
        InputError, OutputError
            The result has no such plot, component or length; ``out`` exists. Nothing is written then.

        Notes
        -----
        More than 20 000 rows are counted on a grid, in two reads and memory that does not grow with them.
        """
        from rankfold.pipeline.exporting.plots.kinds import plot

        options = {"components": components, "color": color, "view": view, "names": names}
        return plot(self, kind, options, ax=ax, out=out, overwrite=overwrite)
