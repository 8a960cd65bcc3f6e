"""What nobody would give on purpose: stores, files, workflows, words and places.

Any answer is right that ends in time, within bounded memory, with an exit code that is documented and one
message: an input that was changed may well be another valid one. No traceback, whatever is in it.
"""

from __future__ import annotations

import functools
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hostile_stores as stores
import numpy as np
import yaml
import zarr
from attacks.damage import GARBAGE, edited
from hostile_stores import DEEP, NUMBERS, Drawn, matrix
from inputs import FLOW
from trials import ANSWERED, FAULT, SAME, Bench, Trial, chance, judge

MOST_SECONDS = 60.0
MOST_BYTES = 1500 * 2**20
"""Of a process, with all that it has imported: the matrices here take a few kilobytes."""


def hostile(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: something is drawn and given, and however it ends, it ends well."""
    draw, began = chance("hostile", seed, number), time.monotonic()
    bench.clear()
    family = sorted(FAMILIES)[number % len(FAMILIES)]
    given, what = FAMILIES[family](bench.trial, draw)
    limits = {"file_bytes": draw.choice((2000, 20_000, 100_000))} if what == "no room for files" else {}
    try:
        outcome = bench.line.run(
            given, bench.trial, limits=limits, patience=MOST_SECONDS, env={"TMPDIR": str(bench.trial)}
        )
    finally:
        subprocess.run(["umount", bench.trial / "small"], capture_output=True)
    verdict, said = judge(outcome, None)
    verdict = ANSWERED if verdict == SAME else verdict
    if verdict != FAULT and outcome.peak_bytes > MOST_BYTES:
        verdict, said = FAULT, f"takes {outcome.peak_bytes / 2**20:.0f} MiB"
    if verdict != FAULT and (sign := OBEYED.search(outcome.out + outcome.err)):
        verdict, said = FAULT, f"says {sign[0]!a} as it is"
    said = said.replace(str(bench.trial), "TRIAL")
    seconds = time.monotonic() - began
    return Trial("hostile", seed, number, given[0], what, family, verdict, outcome.code, said, seconds)


# Words -------------------------------------------------------------------------------------------

NAMES = (
    "with space",
    "zeile\nzwei",
    "日本語",
    "-rf",
    "a::b",
    "%s{0}$HOME",
    "x" * 300,
    "\udcff",
    "~",
    "s3://x",
    "a\x1b[2J\x1b]0;t\x07",
    "a\nrankfold: all is well",
    "a\rrankfold: all is well",
    "a\u202egnp.\u2066",
    "a\u2028\u2029\x85b",
    "a\x9b31m",
    "a\u200b\ufeff\U000e0041",
    "a\ufffe\x7f",
)

OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\U000e0000-\U000e0fff]"
)
"""What a terminal obeys, or shows as nothing."""


def _workflow(folder: Path, draw: random.Random) -> Drawn:
    """A workflow with one thing in it that does not belong there."""
    zarr.save_array(folder / "x.zarr", matrix())
    text = FLOW.replace("{x: X}", "{x: x.zarr}")
    what = draw.choice(
        (
            "value",
            "value",
            "value",
            "edited",
            "edited",
            "edited",
            "line",
            "tag",
            "deep",
            "aliases",
            "many keys",
            "garbage",
            "chain",
        )
    )
    if what == "value":
        lines = text.splitlines()
        at = draw.randrange(len(lines))
        key, _, _ = lines[at].rpartition(":")
        odd = draw.choice(
            (
                *map(str, NUMBERS[:-1]),
                "[]",
                "{}",
                "''",
                "!!python/object/apply:os.system [true]",
                "*x",
                ".nan",
                "'\\0'",
                "|",
                "?",
            )
        )
        lines[at] = f"{key}: {odd}"
        text, what = "\n".join(lines) + "\n", f"{key.strip()}: {odd}"
    elif what == "edited":
        text = yaml.safe_dump(edited(yaml.safe_load(text), draw), sort_keys=False)
    elif what == "line":
        lines = text.splitlines()
        lines.insert(
            draw.randrange(len(lines)),
            draw.choice(("\tx: 1", "- a", "x", "? [a]: b", "%YAML 9.9", "...", "\x07")),
        )
        text = "\n".join(lines)
    elif what == "tag":
        text += "  bad: !!python/object/apply:os.system ['touch executed']\n"
    elif what == "deep":
        text += f"  deep: {DEEP}\n"
    elif what == "aliases":
        text = (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            )
            + text
        )
    elif what == "many keys":
        text += "".join(f"  s{i}: {{method: pca}}\n" for i in range(20_000))
    elif what == "chain":
        stage = "  s{}: {{method: check, result: components, input: x, needs: [{}]}}\n"
        text += "".join(stage.format(i, f"s{i - 1}" if i else "near") for i in range(600))
    else:
        what = draw.choice(sorted(GARBAGE))
        text = ""
    (folder / "flow.yaml").write_text(text) if text else (folder / "flow.yaml").write_bytes(GARBAGE[what])
    return [draw.choice(("plan", "plan", "status", "run")), "flow.yaml"], what


def _options_drawn(folder: Path, draw: random.Random) -> Drawn:
    """Options with values that make no sense."""
    zarr.save_array(folder / "x.zarr", matrix())
    np.save(folder / "x.npy", matrix())
    command = draw.choice(tuple(COMMANDS))
    words = [*COMMANDS[command]]
    option, value = draw.choice(_options(command)), draw.choice(VALUES)
    return [*words, option, value], f"{option} {value[:30]!r}"


VALUES = (
    *(str(number)[:50] for number in NUMBERS),
    *(
        "",
        " ",
        "nan",
        "-inf",
        "1e-400",
        "auto",
        "x",
        "💥",
        "1,2",
        ":",
        "0:0",
        "5:3",
        "-3:",
        "x.zarr",
        "/",
        "1G",
        "2",
    ),
)

COMMANDS = {
    "svd": ("svd", "x.zarr", "--rank", "3", "--out", "out.zarr"),
    "pca": ("pca", "x.zarr", "--rank", "3", "--out", "out.zarr"),
    "qr": ("qr", "x.zarr", "--out", "out.zarr"),
    "nmf": ("nmf", "x.zarr", "--rank", "3", "--out", "out.zarr"),
    "knn": ("knn", "x.zarr", "--k", "3", "--out", "out.zarr"),
    "plan": ("plan", "svd", "x.zarr", "--rank", "3"),
    "transform": ("transform", "x.zarr", "x.zarr", "--out", "out.zarr"),
    "check": ("check", "x.zarr", "x.zarr"),
    "import": ("import", "x.npy", "out.zarr"),
    "info": ("info", "x.zarr"),
    "report": ("report", "x.zarr"),
}
NOT_DRAWN = ("--help", "--debug", "--json", "--out", "--no-center")


@functools.cache
def _options(command: str) -> tuple[str, ...]:
    """Options of a command, as its help names them."""
    words = [sys.executable, "-m", "rankfold", command, "--help"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return tuple(sorted(set(re.findall(r"^  (--[a-z][a-z-]*)", text, re.M)) - set(NOT_DRAWN)))


# Places --------------------------------------------------------------------------------------------


def _place(folder: Path, draw: random.Random) -> Drawn:
    """Inputs and outputs in places that do not take them."""
    zarr.save_array(folder / "x.zarr", matrix())
    np.save(folder / "x.npy", matrix())
    (folder / "loop").symlink_to("loop")
    (folder / "file").write_text("a file")
    out = draw.choice(
        ("", ".", "..", "/", "/dev/null", "/proc/out", "x.zarr", "x.zarr/inside", "file/out.zarr", "loop",
         "loop/out.zarr", "x.npy", "no/such/folder/out.zarr", "small/out.zarr", "limit", *NAMES)
    )  # fmt: skip
    what = f"out {out[:30]!r}"
    if out == "limit":
        out, what = "out.zarr", "no room for files"
    if out == "small/out.zarr":
        (folder / "small").mkdir()
        kilobytes = draw.choice((16, 64, 120, 250))
        if os.geteuid() == 0:
            options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder / "small"]
            subprocess.run(["mount", *options], check=True)
        what = f"a disk of {kilobytes} kB"
    words = draw.choice(
        (["svd", "x.zarr", "--rank", "3", "--out", out], ["knn", "x.zarr", "--k", "2", "--out", out],
         ["nmf", "x.zarr", "--rank", "2", "--out", out], ["import", "x.npy", out], ["import", "x.zarr", out],
         ["svd", "x.zarr", "--rank", "3", "--out", "out.zarr", "--scratch", out], ["info", out],
         ["transform", out, "x.zarr", "--out", "out.zarr"], ["report", out], ["status", out])
    )  # fmt: skip
    overwrite = "--out" in words and out in NAMES and out != "~" and draw.random() < 0.2
    return [*words, *["--overwrite"] * overwrite], what


FAMILIES: dict[str, Callable[[Path, random.Random], Drawn]] = {
    "Zarr 3": lambda folder, draw: stores.zarr_array(folder, draw, 3),
    "Zarr 2": lambda folder, draw: stores.zarr_array(folder, draw, 2),
    "CSR": stores.csr,
    "npy": stores.npy,
    "file": stores.other_file,
    "workflow": _workflow,
    "words": _options_drawn,
    "place": _place,
}
