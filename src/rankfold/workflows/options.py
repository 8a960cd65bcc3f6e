"""Options that several commands share: what they are called, and what they say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Store = Annotated[str, typer.Argument(help="STORE.zarr, STORE.zarr::array, or a .npy file")]
Rank = Annotated[int | None, typer.Option(help="number of components; always needed")]
Out = Annotated[Path, typer.Option(help="where the result goes; the same command again resumes")]
Tol = Annotated[float | None, typer.Option(help="estimated relative error to stop at; 1e-4 by default")]
Method = Annotated[str, typer.Option(help="auto, gram or krylov")]
Passes = Annotated[int | None, typer.Option(help="most passes over the matrix; 8 by default")]
Seed = Annotated[int, typer.Option(help="key of the random start")]
Memory = Annotated[
    str | None, typer.Option(help="working memory, such as 2GiB; by default half of what is free")
]
On = Annotated[str | None, typer.Option(help="local, slurm, or the name or path of a profile")]
Workers = Annotated[
    int | None, typer.Option(help="worker processes, or jobs; without it the threads of this process")
]
Threads = Annotated[int | None, typer.Option(help="of each process; all cores by default")]
Scratch = Annotated[Path | None, typer.Option(help="folder for intermediates; beside OUT by default")]
NoRows = Annotated[bool, typer.Option("--no-rows", help="leave out U or scores")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace another output or unfinished run")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Missing = Annotated[str, typer.Option("--missing-chunks", help="error, or fill to read the fill value")]
Center = Annotated[bool, typer.Option("--center/--no-center", help="subtract column means")]
Scale = Annotated[bool, typer.Option("--scale", help="divide columns by their standard deviation")]
Whiten = Annotated[bool, typer.Option("--whiten", help="scores of unit variance")]
Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
