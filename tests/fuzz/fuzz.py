"""Give every parser files that nobody would write, for as long as there is time.

    python tests/fuzz/fuzz.py --seconds 600                 each parser for ten minutes of a processor
    python tests/fuzz/fuzz.py --seconds 60 --seed 3 npy     one of them, by other chances
    python tests/fuzz/fuzz.py --again                       what was found earlier

An input is a few changes away from a valid file, or from an earlier input that ran lines of rankfold that no
other had run. It may be read, or refused by an error of rankfold. Faults are: any other error, a warning that
is an error, more than SECONDS_EACH, more memory than MOST_BYTES above that of the process, and the end of
the process, but for ends in a library that parses in C, which are counted beside them. What led to a fault is
made smaller and kept in ``found``, where ``test_fuzz`` tries it from then on.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mutations import Files, change, smaller

HERE = Path(__file__).parent
FOUND = HERE / "found"
ROOT = str(HERE.parents[1] / "src" / "rankfold")

SECONDS_EACH = 10.0
"""Of a processor, most for one input; valid ones take some milliseconds."""

MOST_BYTES = 2**30
"""Most memory for one input: addresses of a process above what it has when it begins."""

SHRINK_SECONDS = 10.0

START_SECONDS, SILENT_SECONDS = 900.0, 300.0
"""Until a process has read all valid files, and for one input, on a machine with much other work."""

CORPUS = 400
"""Most inputs that are kept to begin from."""


class TooLong(BaseException):
    """An input took more than its time: no handler of errors may take it."""


@dataclass
class Faults:
    """What went wrong, each kind once."""

    parser: str
    known: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, files: Files, said: str) -> bool:
        """Keep an input; whether its kind of fault is new."""
        if kind in self.known:
            return False
        self.known[kind] = said
        keep(FOUND / self.parser.replace(" ", "-"), kind, files)
        return True


def keep(folder: Path, kind: str, files: Files) -> Path:
    """Write an input under a name that follows from the fault."""
    name = "".join(sign if sign.isalnum() else "-" for sign in kind)[:60].strip("-")
    place, number = folder / name, 1
    while place.exists():
        place, number = folder / f"{name}-{number + 1}", number + 1
    lay_out(place, files)
    return place


def lay_out(folder: Path, files: Files) -> None:
    """Write the files of an input into a new folder."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def files_in(folder: Path) -> Files:
    """The input in a folder."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# One input -----------------------------------------------------------------------------------------


def try_one(parser: Any, folder: Path) -> tuple[str, str] | None:
    """Read what lies in a folder; the kind of fault and what was said, None where all is well."""
    from rankfold.pipeline.errors import RankfoldError

    signal.signal(signal.SIGPROF, _expire)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_EACH)
    try:
        parser.read(folder)
    except RankfoldError as error:
        return None if str(error).strip() else ("no message", repr(error))
    except TooLong:
        return f"hang {_place(sys.exc_info()[2])}", traceback.format_exc(limit=-8)
    except (MemoryError, OSError) as error:
        # The command line makes one message of an error of the system; too little memory is ours.
        if isinstance(error, OSError):
            return None
        return f"memory {_place(error.__traceback__)}", traceback.format_exc(limit=-8)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__} {_place(error.__traceback__)}", traceback.format_exc(limit=-8)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def _expire(number: int, frame: FrameType | None) -> None:
    raise TooLong


def _place(trace: Any) -> str:
    """The innermost line of rankfold in a traceback."""
    ours = [one for one in traceback.extract_tb(trace) if one.filename.startswith(ROOT)]
    return f"{os.path.basename(ours[-1].filename)} {ours[-1].name}" if ours else "elsewhere"


# Lines that were run -------------------------------------------------------------------------------


class Lines:
    """Which lines of rankfold have been run so far, by any input."""

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, int]] = set()
        self._new = False

    def __enter__(self) -> Lines:
        self._new = False
        sys.settrace(self._call)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    @property
    def any_new(self) -> bool:
        """Whether the last block ran one that none before had."""
        return self._new

    def _call(self, frame: FrameType, event: str, value: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(ROOT) else None

    def _line(self, frame: FrameType, event: str, value: object) -> Any:
        place = (frame.f_code, frame.f_lineno)
        if place not in self.seen:
            self.seen.add(place)
            self._new = True
        return self._line


# One parser, in a process of its own -----------------------------------------------------------------


def attack(name: str, seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    """Try inputs until the time is over; what is being tried lies in ``folder / "current"``."""
    from parsers import PARSERS

    from rankfold.pipeline.errors import RankfoldError

    faulthandler.enable()
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)
    parser, draw = PARSERS[name], random.Random(f"{name} {seed}")
    valid = [dict(files) for files in parser.valid()]
    corpus, lines, faults, count = list(valid), Lines(), Faults(name), 0
    for number, files in enumerate(valid):  # imports and kernels, before time and memory count
        place = folder / f"valid-{number}"
        lay_out(place, files)
        with contextlib.suppress(
            *([RankfoldError] if number else [])
        ):  # some are refused by name; the first is read
            parser.read(place)
        shutil.rmtree(place)
    _bound_memory()
    began = time.process_time()
    while (spent := time.process_time() - began) < seconds:
        files = change(draw.choice(corpus if draw.random() < 0.7 else valid), valid, parser.words, draw)
        if not files:
            continue
        fault = _traced(parser, files, folder, lines)
        count += 1
        if fault is not None:
            kind, said = fault
            if kind not in faults.known:
                files = _shrink(parser, files, kind, folder, draw)
                faults.add(kind, files, said)
        elif lines.any_new:
            corpus.append(files)
            if len(corpus) > CORPUS:
                del corpus[len(valid)]
        (folder / "progress").write_text(json.dumps(_summary(count, spent, lines, faults)))
    return _summary(count, spent, lines, faults)


def _summary(count: int, spent: float, lines: Lines, faults: Faults) -> dict[str, Any]:
    return {"inputs": count, "seconds": spent, "lines": len(lines.seen), "faults": faults.known}


def _traced(parser: Any, files: Files, folder: Path, lines: Lines) -> tuple[str, str] | None:
    place = folder / "current"
    shutil.rmtree(place, ignore_errors=True)
    try:
        lay_out(place, files)
    except (OSError, ValueError):
        return None
    with lines:
        return try_one(parser, place)


def _shrink(parser: Any, files: Files, kind: str, folder: Path, draw: random.Random) -> Files:
    """A smaller input with the same fault, as far as one is found soon."""
    until = time.monotonic() + SHRINK_SECONDS
    while time.monotonic() < until:
        less = smaller(files, draw)
        fault = _traced(parser, less, folder, Lines()) if less else None
        if fault is not None and fault[0] == kind:
            files = less
    return files


def _bound_memory() -> None:
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**21
    )
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def again(names: Iterable[str], folder: Path) -> int:
    """Try everything that was found earlier; how many of these are still faults."""
    from parsers import PARSERS

    warnings.simplefilter("ignore")
    faulthandler.enable()
    count = 0
    for name in names:
        warm = folder / f"{name.replace(' ', '-')}-valid"
        lay_out(warm, PARSERS[name].valid()[0])
        PARSERS[name].read(warm)  # imports and kernels
        for number, found in enumerate(sorted((FOUND / name.replace(" ", "-")).glob("*"))):
            place = folder / f"{name.replace(' ', '-')}-{number}"
            shutil.copytree(found, place)
            print(f"{name}: {found.name}", flush=True)
            if fault := try_one(PARSERS[name], place):
                print("\n".join(fault), flush=True)
                count += 1
    return count


# All of them ---------------------------------------------------------------------------------------


def run(names: Iterable[str], seconds: float, seed: int) -> dict[str, dict[str, Any]]:
    """Attack parsers one after another; what each took and what was found."""
    outcome = {}
    for name in names:
        outcome[name] = _in_a_process(name, seconds, seed)
        one = outcome[name]
        ends = "".join(f", {count} times {how} in {where}" for (how, where), count in one["ends"].items())
        print(f"{name:10} {one['inputs']:8} inputs  {one['seconds']:6.0f} s  {one['lines']:5} lines  "
              f"{len(one['faults'])} faults{ends}", flush=True)  # fmt: skip
        for kind, said in one["faults"].items():
            print(f"    {kind}\n        " + said.strip().replace("\n", "\n        "), flush=True)
    return outcome


def _in_a_process(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """One parser; a process that ends on an input, or hangs where no signal reaches it, is replaced."""
    from parsers import PARSERS

    library = PARSERS[name].library
    total: dict[str, Any] = {"inputs": 0, "seconds": 0.0, "lines": 0, "faults": {}, "ends": Counter()}
    turn, at_work = 0, True
    while at_work and ((left := seconds - total["seconds"]) > 1 or turn == 0):
        with tempfile.TemporaryDirectory(prefix="rankfold-fuzz-") as text:
            folder = Path(text)
            ending = _child(name, left, seed + 1000 * turn, folder)
            turn += 1
            at_work = _add(total, folder)
            if ending and library and at_work:
                total["ends"][ending, library] += 1
            elif ending:
                if (folder / "current").is_dir():
                    keep(FOUND / name.replace(" ", "-"), ending, files_in(folder / "current"))
                total["faults"][ending] = (folder / "log").read_text(errors="replace")[-3000:]
    return total


def _child(name: str, seconds: float, seed: int, folder: Path) -> str:
    """Run one process to its end; how it ended, if badly."""
    command = [
        sys.executable,
        __file__,
        "--seconds",
        str(seconds),
        "--seed",
        str(seed),
        "--within",
        str(folder),
        name,
    ]
    environment = {
        **os.environ,
        "TMPDIR": str(folder),
        "PATH": str(folder),  # where no queue of jobs is asked
        "PYTHONPATH": os.pathsep.join([ROOT + "/..", *sys.path]),
    }
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        last, changed = -1.0, time.monotonic()
        while child.poll() is None:
            time.sleep(0.5)
            progress = folder / "progress"
            stamp = progress.stat().st_mtime if progress.exists() else 0.0
            if stamp != last:
                last, changed = stamp, time.monotonic()
            if time.monotonic() - changed > (SILENT_SECONDS if stamp else START_SECONDS):
                child.kill()
                child.wait()
                return "hang of the process"
    if child.returncode == 0:
        return ""
    return f"signal {-child.returncode}" if child.returncode < 0 else f"exit {child.returncode}"


def _add(total: dict[str, Any], folder: Path) -> bool:
    """Add what a process has done; whether it came as far as the first input."""
    path = folder / "progress"
    if not path.exists():
        return False
    one = json.loads(path.read_text())
    total["inputs"] += one["inputs"]
    total["seconds"] += one["seconds"]
    total["lines"] = max(total["lines"], one["lines"])
    total["faults"] |= one["faults"]
    return True


def main() -> int:
    from parsers import PARSERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PARSERS, []], help=f"of {', '.join(PARSERS)}")
    parser.add_argument("--seconds", type=float, default=600.0, help="of a processor, for each parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="only what was found earlier")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.again:
        with tempfile.TemporaryDirectory(prefix="rankfold-fuzz-") as folder:
            return min(1, again(options.names or PARSERS, Path(folder)))
    if options.within is not None:
        attack(options.names[0], options.seconds, options.seed, options.within)
        return 0
    own = [name for name, parser in PARSERS.items() if not parser.is_of_library]
    outcome = run(options.names or own, options.seconds, options.seed)
    return 1 if any(one["faults"] for one in outcome.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
