"""Settings of a site for worker jobs, in one YAML file that people keep and share.

    partition: main
    account: physics
    walltime: "02:00:00"
    memory: 16GiB
    cores: 8
    interface: ib0
    scratch: $TMPDIR
    prologue: [module load python]

A profile is found by its path, in the working folder, in the user's configuration folder, or among those of
rankfold. An unknown key is an error that names its line and the key that was probably meant.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from rankfold.cluster.profiles import shipped_profiles
from rankfold.pipeline.errors import InputError
from rankfold.settings.yaml_file import WHOLE, Bytes, SettingsError, fill_model, read_document, require_file

WORD = re.compile(r"\w[\w.,:@+=/-]*")
"""Pattern of words that need no quotes in job scripts."""

FOLDER = re.compile(r"(?:[^\x00-\x1f\x7f\"\\`$]|\$\w+|\$\{\w+(?::-[\w./ -]*)?\})+")
"""Pattern of a path that can stand in double quotes in a shell; it may hold variables, but no commands."""

WALLTIME = re.compile(r"(?a)\d+|\d+:\d{2}|\d+:\d{2}:\d{2}|\d+-\d+|\d+-\d+:\d{2}|\d+-\d+:\d{2}:\d{2}")
"""Pattern of times that SLURM accepts: minutes, M:SS, H:MM:SS, D-H, D-H:MM, D-H:MM:SS."""


def _word(value: str) -> str:
    if not WORD.fullmatch(value):
        raise ValueError(f"{value!r} is no such name: letters, digits and . , : @ + = / - _ are taken")
    return value


def _one_line(value: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise ValueError(f"{value!r} is more than one line, or holds a control character")
    return value


def _folder(value: str) -> str:
    if not FOLDER.fullmatch(value):
        raise ValueError(
            f"{value!r} is no folder of a node: give a path, with variables as $TMPDIR or "
            '${SLURM_TMPDIR:-/tmp}; no ", \\, ` nor $(...)'
        )
    return value


def _walltime(value: str) -> str:
    if not WALLTIME.fullmatch(value):
        raise ValueError("a walltime is written in minutes, or H:MM:SS, or D-HH:MM:SS")
    return value


def walltime_seconds(walltime: str) -> int:
    """Seconds of a walltime as SLURM reads it.

    >>> [walltime_seconds(text) for text in ("90", "1:30", "2:00:00", "1-12", "1-00:00:01")]
    [5400, 90, 7200, 129600, 86401]
    """
    days, dash, clock = walltime.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:
        parts += [0] * (3 - len(parts))
    elif len(parts) == 1:
        parts += [0]
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + part
    return seconds + 86400 * int(days or 0)


Word = Annotated[str, AfterValidator(_word)]
Line = Annotated[str, AfterValidator(_one_line)]
Walltime = Annotated[str, AfterValidator(_walltime)]
Count = Annotated[int, Field(ge=1), WHOLE]
Number = Annotated[int, Field(ge=0), WHOLE]


class Profile(BaseModel):
    """Settings of a site's jobs: of jobs with one worker each, or of one job that holds a whole command."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(exclude=True)] = "slurm"
    scheduler: Literal["slurm", "pbs", "lsf", "sge"] = "slurm"
    """Queue system of the jobs."""

    partition: Word | None = None
    account: Word | None = None
    walltime: Walltime = "01:00:00"
    memory: Bytes | None = None
    """Memory to request for a job; by default derived from the working memory."""

    cores: Count = 1
    gpus: Number = 0
    workers: Count = 2
    """Number of jobs, if the call gives none."""

    interface: Word | None = None
    """Network interface of workers, and of the scheduler unless ``scheduler_interface`` is set."""

    scheduler_interface: Word | None = None
    scratch: Annotated[str, AfterValidator(_folder)] | None = None
    """Folder on the node for a worker's own files, which are small. By default ``$TMPDIR`` or /tmp."""

    prologue: tuple[str, ...] = ()
    """Lines of the job script that run before the worker starts."""

    directives: tuple[Line, ...] = ()
    """Additional ``#SBATCH`` options, or those of another queue system."""

    python: Line | None = None
    """Interpreter on the nodes; by default that of the caller."""

    tls: bool = False
    """True if scheduler and workers use TLS, with a certificate made for the run."""

    wait: Walltime = "0:30:00"
    """Longest wait for the first worker."""

    drain: Walltime | None = None
    """Time before the end of a job at which its worker is replaced, or all work stops, to go on in the next
    job. A tenth of the walltime by default, at least 20 seconds.
    """

    nodes: Count = 1
    """Number of nodes of a job that holds a whole command."""

    workers_per_node: Count = 1
    """Workers on each node of such a job; ``memory``, ``cores`` and ``gpus`` are those of one worker
    in it.
    """

    bandwidth: Bytes | None = None
    """Bytes per second of the file system, for all workers together: a plan then says
    how many workers it can feed.
    """

    requeue: Number = 20
    """Largest number of times that such a job is requeued until all is done."""

    @field_validator("drain")
    @classmethod
    def _within_the_walltime(cls, drain: str | None, info: ValidationInfo) -> str | None:
        walltime = info.data.get("walltime")
        if drain and walltime and walltime_seconds(drain) >= walltime_seconds(walltime):
            raise ValueError(f"drain: is a time before the end of a walltime, here of {walltime}")
        return drain

    @field_validator("nodes", "workers_per_node", "requeue")
    @classmethod
    def _of_whole_commands(cls, value: int, info: ValidationInfo) -> int:
        if (scheduler := info.data.get("scheduler", "slurm")) != "slurm":
            raise ValueError(
                "belongs to jobs that hold a whole command, which only SLURM has: leave it out with "
                f"scheduler: {scheduler}"
            )
        return value

    @property
    def drain_seconds(self) -> int:
        """``drain`` in seconds."""
        whole = walltime_seconds(self.walltime)
        return walltime_seconds(self.drain) if self.drain else min(max(20, whole // 10), whole // 2)

    @property
    def wait_seconds(self) -> int:
        """``wait`` in seconds."""
        return walltime_seconds(self.wait)

    def threads_for(self, threads: int | None, cores: int) -> int:
        """Number of segments (units of work) that a worker runs at once: ``threads``, if that is given.

        By default it is one on each GPU of the worker, or without GPUs one on each of its ``cores``.
        """
        if self.gpus and (threads or 0) > self.gpus:
            raise InputError(
                f"a worker of the profile {self.name} has gpus: {self.gpus} and runs one segment on each, "
                f"not {threads}: leave out threads= (--threads), or gpus: in the profile for work on cores"
            )
        return threads or self.gpus or cores


def find_profile(profile: object) -> Profile:
    """Read a profile, found by path or name; ``"slurm"`` without a file gives the defaults."""
    if isinstance(profile, Profile):
        return profile
    if not isinstance(profile, str | os.PathLike):
        raise InputError(f"cluster= takes 'local', 'slurm' or a profile, not {profile!r}")
    name = os.fspath(profile)
    folders = profile_folders()
    if name.endswith((".yaml", ".yml")):
        return read_profile(require_file(Path(name), "profile"))
    paths = [folder / f"{name}.yaml" for folder in folders]
    package_profiles = shipped_profiles()
    paths += [package_profiles[name]] if name in package_profiles else []
    for path in paths:
        if path.is_file():
            return read_profile(_require_own(path))
    if name == "slurm":
        return Profile()
    own = {p.stem for folder in folders for p in folder.glob("*.yaml")}
    near = difflib.get_close_matches(name, sorted({"local", "slurm", *own, *package_profiles}), n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise SettingsError(
        f"there is no profile {name!r}.{hint} Give a path, or put {name}.yaml into {folders[-1]}. "
        f"With rankfold come {', '.join(package_profiles)}: rankfold profile NAME prints one"
    )


def _require_own(path: Path) -> Path:
    """Return the path; raise if a profile was found by name in the working folder and belongs to somebody
    else.
    """
    if path.parent == Path() and path.stat().st_uid not in (os.geteuid(), 0):
        raise SettingsError(
            f"the profile {path} in the working folder belongs to somebody else, and what it says runs as "
            f"you. Read it, and if you trust it, give its path: ./{path}"
        )
    return path


def absolute_profile(profile: str, folder: Path) -> str:
    """Path or name by which a profile is found from every folder.

    A path, or a name with a file in ``folder``, is made absolute.
    """
    by_path = profile.endswith((".yaml", ".yml"))
    file = folder.absolute() / (profile if by_path else f"{profile}.yaml")
    return os.path.normpath(file) if by_path or file.is_file() else profile


def profile_folders() -> tuple[Path, ...]:
    """Folders that are searched for profiles, nearest first."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path("."), home / "rankfold" / "profiles"


def read_profile(path: Path) -> Profile:
    """Read a profile; every mistake in it is reported in one line with its place."""
    return fill_model(read_document(path, "profile"), Profile, name=path.stem)
