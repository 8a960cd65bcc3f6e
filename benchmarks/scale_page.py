"""The guide on scaling, from what was simulated and modelled: tables, and a figure.

python benchmarks/scale_page.py --page docs/scaling.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "scale.json"
SHOWN = (1, 8, 32, 128, 512, 4096)
"""Workers of the table."""

INTRODUCTION = """# Scaling

This page shows how a run scales to hundreds of workers, and where more of them stop helping: what the plan
says, what a simulation of 512 workers measured, and what a model predicts for 1 to 4096. It is made by
`benchmarks/scale_page.py` from `benchmarks/results/scale.json`. The [design
note](design/0038-scale-by-simulation.md) says what is real in the simulation and what sleeps.

## What a plan says

`rankfold plan` ends its line on tasks with the number of workers beyond which more do not help, and why:

| reason | what limits the workers | what to change |
|---|---|---|
| streams | each thread has a stream of rows, of which there are at most 8192 | nothing |
| reading | the file system gives no more: a profile says [how much](slurm.md#a-profile) | wider stripes |
| merges | the sums of the streams take longer to merge than their rows to fold | a smaller rank |
| exchange | each worker reads what all others wrote, as positions in a layout | wider stripes |

The number is that of the sweep that takes the longest, on nominal cores. On GPUs only streams count, since a
plan does not know the rates of GPUs: the model below says where reading is the limit. A plan does not know
the links of nodes either. If these supply a worker with less than its cores could process, more workers help,
by that ratio. No more workers are started than there are streams.
"""

SIMULATION = """
## Hundreds of workers that sleep

The simulation plans `svd` with 50 components for a matrix of 100 TB ({rows} x {columns} float32 in
chunks of 262 MB) that has a shape but no numbers. The engine and Dask's scheduler then run its sweeps, with
checkpoints, merges and reports of progress. Workers have one thread, and their segments sleep for the time
that the plan predicts.

{table}

- *Time*: factor by which segments sleep shorter than planned. The scheduler and the file system work at
  their normal speed, so time lost to them counts that many times as much as it would in a real run.
- *Planned*: the work of all segments, shared equally. *Took*: time from the first check of the folder of the
  sweep to its sum. *Efficiency* is the ratio. *Predicted* is the time that the model below gives for these
  workers, as a share of the time taken.
- *Scheduler*: processor time of its thread, which is also the client's, for each task. The first number is
  without heartbeats and idle time, the second with them. These depend on time and not on tasks.
- *Files made*: checkpoints of streams and sums of merges, in the time of the plan. This is close to one for
  each thread in the time that a segment takes, 20 seconds: {lanes} threads make {rate:.0f} a second.

The machine had {cores} cores: a thread that woke up late counts as lost time.
{calls}
"""

MODEL = """
## A model of 1 to 4096 workers

The model is of a machine with nodes of 128 cores or 4 GPUs, 512 GB of memory and 200 Gb/s, and a Lustre
file system of 500 GB/s. There are four workers to a node, each of 32 cores or of one GPU of 15 Tflop/s in
float32. For `umap`, whose positions must fit in a process, there is one worker to a node. A core multiplies
80 Gflop/s in float32, which determines the size of segments. Matrices have 1000 columns of float32. Times
are those of the likely number of passes; for `umap` they are those of the layout alone, from a random start.
The table has seconds:

{table}

*Stops at*: the last number of workers for which twice as many are at least {gain} times as fast.
*Limited by*: the part of the time that they do not halve. `knn` is the search by partitions{knn}.

![Seconds against workers](figures/scaling.svg)

{words}

## Beside the least there can be

The table compares bytes of a pass with lower bounds: reads from the file system, and what each of 512
workers sends and receives. A pass has to read the matrix once, since each number counts. A product of m n b
multiplications with M words of memory moves at least m n b / (2 sqrt(2) sqrt(M)) - M words (Irony, Toledo,
Tiskin 2004, after Hong, Kung 1981; Ballard, Demmel, Holtz, Schwartz 2011 for linear algebra in general).
Here this is less than one read, since blocks are narrow. Both products of a pass are made from one read. What
workers send is compared with the bound on matrix products of Al Daas, Ballard, Grigori, Kumar, Rouse 2022.

{bounds}

A pass reads no byte twice, and workers exchange almost only sums. So the only gain left is from
fewer passes: see [accuracy](accuracy.md).
"""

WORDS = """\
- `svd` and `nmf` are limited by reading: four workers to a node share its 25 GB/s, and some 80 workers take
  all that the file system gives. Beyond that, only fewer passes or compressed chunks make them faster.
- A matrix of 1 TB is read in two seconds by all of them. There, graphs, the scheduler and starting a sweep
  are a large part of the time, and no more than some dozens of workers are worth their wait in a queue.
- `knn` by partitions has at most 256 streams in each of its sweeps, so that 256 threads have work. These are
  8 workers of 32 cores at 1 TB. At 10 TB they are 256 workers, each with memory for only one segment.
- `umap` exchanges the positions of all rows after every epoch, through the file system. Each worker
  reads them all, so more workers read more in total, and no more than some dozens help."""


def simulated_rows(results: dict[str, Any]) -> list[str]:
    """A line for each sweep that was slept through."""
    titles = (
        *("workers", "time", "sweep", "tasks", "planned", "took", "efficiency", "predicted"),
        *("scheduler, a task", "with heartbeats", "driver and scheduler", "files made, a second"),
    )
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for run in results["simulations"].values():
        for one in run["sweeps"]:
            planned = one["planned_seconds"]
            files = one["tasks"] / planned
            with_heartbeats = one["scheduler_seconds"] / one["tasks"]
            lines.append(
                f"| {run['workers']} | {run['scale']:g} x | {one['sweep']} | {one['tasks']} "
                f"| {planned / run['scale']:.1f} s "
                f"| {one['seconds']:.1f} s | {100 * one['efficiency']:.1f} % "
                f"| {one['predicted_seconds'] / one['seconds']:.3f} of it "
                f"| {1e3 * one['scheduler_seconds_of_a_task']:.2f} ms | {1e3 * with_heartbeats:.2f} ms "
                f"| {one['peak_bytes'] / 2**20:.0f} MiB | {files:.1f} |"
            )
    return lines


def calls_text(results: dict[str, Any]) -> str:
    """What was asked of the file system, of the run with most workers."""
    run = max(results["simulations"].values(), key=lambda one: one["workers"])
    tasks = sum(one["tasks"] for one in run["sweeps"])
    planned = sum(one["planned_seconds"] for one in run["sweeps"])
    kinds = run["worker_calls"]
    each = ", ".join(f"{kind} {count / tasks:.2f}" for kind, count in sorted(kinds.items()))
    driver = sum(sum(one["driver_calls"].values()) for one in run["sweeps"])
    return (
        f"Workers make these calls of the file system for each task: {each}.\n"
        f"The driver makes {driver / tasks:.2f}, to remove parts that are merged. Together that is "
        f"{(sum(kinds.values()) + driver) / planned:.0f} a second\nin the time of the plan."
    )


def model_rows(results: dict[str, Any]) -> list[str]:
    """A line for each method, size and kind of node."""
    titles = (
        "method",
        "matrix",
        "a worker has",
        *map(str, SHOWN),
        "stops at",
        "efficiency there",
        "limited by",
    )
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for case in results["model"]:
        worker = case["machine"].partition(" of ")[2].partition(" to ")[0]
        head = f"| `{case['method']}` | {case['terabytes']} TB | {worker} |"
        if "points" not in case:
            reason = case["refusal"].partition(". ")[0]
            subject, needs, most = reason.partition(" needs ")
            reason = f"needs {most.partition(',')[0]}" if needs else subject
            lines.append(f"{head} {' | '.join(['-'] * (len(SHOWN) + 2))} | {reason} |")
            continue
        points = {point["workers"]: point for point in case["points"]}
        cells = " | ".join(seconds(points[w]["total"]) if w in points else "does not fit" for w in SHOWN)
        share = f"{100 * points[case['stops_at']]['efficiency']:.0f} %"
        lines.append(f"{head} {cells} | {case['stops_at']} | {share} | {case['stopped_by']} |")
    return lines


def seconds(value: float) -> str:
    """Three digits, without exponents."""
    return f"{value:.3g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}".replace(",", " ")


def bound_rows(results: dict[str, Any]) -> list[str]:
    """Bytes beside bounds."""
    lines = [
        "| method | matrix | reads of a pass | least | times | sends of a worker | least | times |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in results["model"]:
        found = case.get("bounds") or {}
        if "sends" not in found or "GPU" in case["machine"]:
            continue
        reads, sends = (found[name] / found[f"least_{name}"] for name in ("reads", "sends"))
        lines.append(
            f"| `{case['method']}` | {case['terabytes']} TB | {found['reads'] / 1e12:.3g} TB "
            f"| {found['least_reads'] / 1e12:.3g} TB | {reads:.2f} | {found['sends'] / 1e6:.2f} MB "
            f"| {found['least_sends'] / 1e6:.2f} MB | {sends:.2f} |"
        )
    return lines


def page(results: dict[str, Any]) -> str:
    """The guide."""
    runs = list(results["simulations"].values())
    most = max(runs, key=lambda run: run["workers"])
    first = most["sweeps"][0]
    refused = [case for case in results["model"] if case["method"] == "knn" and "points" not in case]
    knn = (
        f", whose tables of partitions do not fit in a worker at {refused[0]['terabytes']} TB"
        if refused
        else ""
    )
    parts = [
        INTRODUCTION,
        SIMULATION.format(
            rows=most["shape"][0],
            columns=most["shape"][1],
            table="\n".join(simulated_rows(results)),
            lanes=most["workers"],
            rate=first["tasks"] / first["planned_seconds"],
            cores=most["cores"],
            calls=calls_text(results),
        ),
        MODEL.format(
            table="\n".join(model_rows(results)),
            gain=1.1,
            knn=knn,
            words=WORDS,
            bounds="\n".join(bound_rows(results)),
        ),
    ]
    return "".join(parts)


def draw(results: dict[str, Any], path: Path) -> None:
    """Seconds against workers, and the line of equal shares."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "rankfold"
    cases = [case for case in results["model"] if "points" in case and "GPU" not in case["machine"]]
    methods = list(dict.fromkeys(case["method"] for case in cases))
    figure, axes = plt.subplots(1, len(methods), figsize=(3 * len(methods), 3), layout="constrained")
    for axis, method in zip(axes, methods, strict=True):
        for case in (one for one in cases if one["method"] == method):
            workers = [point["workers"] for point in case["points"]]
            seconds = [point["total"] for point in case["points"]]
            (line,) = axis.loglog(workers, seconds, label=f"{case['terabytes']} TB")
            ideal = [seconds[0] * workers[0] / count for count in workers]
            axis.loglog(workers, ideal, ":", color=line.get_color(), linewidth=0.8)
        axis.set(title=method, xlabel="workers")
        axis.legend(fontsize=7)
    axes[0].set_ylabel("seconds")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Write the guide, and the figure beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=Path("docs/scaling.md"))
    asked = parser.parse_args()
    results = json.loads(asked.results.read_text())
    asked.page.write_text(page(results))
    draw(results, asked.page.parent / "figures" / "scaling.svg")


if __name__ == "__main__":
    main()
