"""Compile the library of faults, and tell it what goes wrong, while commands run."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
FIELDS = ("clock_shift", "delay_us", "every", "stale_at", "cut_pid", "hub_pid", "hub_port")
FIELDS += ("late_us", "unlocked", "calls", "reads")
LAYOUT = struct.Struct("d10q")


def missing_compiler() -> str | None:
    """Why no library can be made here; None if it can."""
    if shutil.which("gcc") is None:
        return "there is no gcc, which compiles the library that lets files and clocks misbehave"
    return None


class Faults:
    """What goes wrong below a folder, for processes that have been started with ``env``."""

    def __init__(self, folder: Path, below: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        library, control = folder / "faults.so", folder / "control"
        words = ["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(words, check=True, capture_output=True)
        control.write_bytes(bytes(mmap.PAGESIZE))
        with open(control, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.env = {
            "LD_PRELOAD": str(library),
            "RANKFOLD_CHAOS_CONTROL": str(control),
            "RANKFOLD_CHAOS_BELOW": f"{below}/",
        }

    def set(self, **faults: float) -> None:
        """Let this go wrong from now on, and nothing else; counts begin anew."""
        unknown = faults.keys() - set(FIELDS)
        if unknown:
            raise ValueError(f"there is no fault {sorted(unknown)}; there are {FIELDS}")
        shift, *others = (faults.get(name, 0) for name in FIELDS)
        self._memory[: LAYOUT.size] = LAYOUT.pack(shift, *map(int, others))

    def count(self, name: str) -> int:
        """``calls`` or ``reads`` since faults were set."""
        values = dict(zip(FIELDS, LAYOUT.unpack(self._memory[: LAYOUT.size]), strict=True))
        return int(values[name])
