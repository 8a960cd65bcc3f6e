"""Tables of the guide on GPUs, from what was measured on one.

python benchmarks/gpu.py --out benchmarks/results/gpu.json     on a machine with a GPU
python benchmarks/gpu_page.py                                  writes between the marks of docs/gpu.md
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS, PAGE = FOLDER / "results" / "gpu.json", FOLDER.parent / "docs" / "gpu.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HOST = re.compile(r", host of (\d+) cores$")
PLAIN, PEER = ", plain CuPy", "torch."

INTRODUCTION = """\
One run of `benchmarks/gpu.py` on an {device} with CuPy {cupy}. Limits of the chip, in that run:
{f32:.0f} Tflop/s in float32, {f64:.0f} in float64, {tf32:.0f} in tf32; {copy:.1f} TB/s of its memory,
{upload:.0f} GB/s from pinned memory."""

METHODS = """\
Methods read float32 from the page cache; the shorter of two runs, which gave the same bytes:"""

KERNELS = """\
Kernels, on data that lie on the device. The limit is what arithmetic or memory takes, whichever takes
longer; errors are relative, against float64, on 1000 to 20 000 rows of the same kind; the last column is
the same written with products of CuPy:"""


def page(text: str, results: dict[str, Any]) -> str:
    """The guide with new tables between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(f"the page has no {BEGIN} ... {END} to put tables between")
    return f"{before}{BEGIN}\n\n{section(results)}\n\n{END}{after}"


def section(results: dict[str, Any]) -> str:
    """All that was measured, in words and tables."""
    facts, rows = results["facts"], {row["name"]: row for row in results["rows"]}
    units = {"f32": 1e12, "f64": 1e12, "tf32": 1e12, "copy": 1e12, "upload": 1e9}
    head = INTRODUCTION.format(**facts | {name: facts[name] / unit for name, unit in units.items()})
    hosts = {HOST.sub("", name): row for name, row in rows.items() if HOST.search(name)}
    plain = {name.removesuffix(PLAIN): row for name, row in rows.items() if name.endswith(PLAIN)}
    peers = [row for name, row in rows.items() if name.startswith(PEER)]
    kernels = [
        row
        for name, row in rows.items()
        if name not in hosts
        and not (HOST.search(name) or name.endswith(PLAIN) or name.startswith(PEER) or row["error"] is None)
    ]
    cores = {match[1] for name in rows if (match := HOST.search(name))}
    beside = "; ".join(f"`{row['name']}`: {time_of(row)}" for row in peers)
    return "\n\n".join(
        [
            head,
            METHODS,
            methods_table(hosts, rows, ", ".join(sorted(cores))),
            KERNELS,
            kernels_table(kernels, plain),
            f"PyTorch on the same device: {beside}.",
        ]
    )


def methods_table(hosts: dict[str, Any], rows: dict[str, Any], cores: str) -> str:
    """Whole methods, and the host of the same machine."""
    lines = [f"| method | GPU | host, {cores} cores |", "|---|---|---|"]
    lines += [f"| {name} | {time_of(rows[name])} | {time_of(host)} |" for name, host in hosts.items()]
    return "\n".join(lines)


def kernels_table(kernels: list[dict[str, Any]], plain: dict[str, Any]) -> str:
    """Kernels, and the same without them."""
    lines = ["| kernel | time | of the limit | error | plain CuPy |", "|---|---|---|---|---|"]
    for row in kernels:
        longer = plain.get(row["name"], {}).get("times_ours")
        cells = [
            row["name"],
            time_of(row),
            f"{row['limit'] / row['seconds']:.0%}",
            f"{row['error']:.0e}" if row["error"] else "0",
        ]
        lines.append(f"| {' | '.join(cells)} | {'' if longer is None else f'{longer:.0f} times'} |")
    return "\n".join(lines)


def time_of(row: dict[str, Any]) -> str:
    """Seconds, or milliseconds where these are few."""
    seconds = row["seconds"]
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), json.loads(RESULTS.read_text())))
