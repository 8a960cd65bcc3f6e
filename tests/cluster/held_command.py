"""The command line, held where it first tells of a sweep until its input ends: tests signal it meanwhile.

python held_command.py SWEEP run flow.yaml
"""

from __future__ import annotations

import sys

from rankfold.pipeline.planning.progress import SweepProgress
from rankfold.workflows.cli import main

if __name__ == "__main__":
    sweep, told = sys.argv.pop(1), SweepProgress.__call__

    def held(self: SweepProgress, name: str, done: int, total: int) -> None:
        told(self, name, done, total)
        if name == sweep:
            print("held", file=sys.stderr, flush=True)
            sys.stdin.read()

    SweepProgress.__call__ = held  # type: ignore[method-assign]
    main()
