"""A driver of which tests count what it did: like ``driver.py``, and signals end it as they end a command.

python counting_driver.py STORE OUT SECONDS '{"cluster": "allocation"}'
"""

from __future__ import annotations

import json
import logging
import sys

from counted_source import CountedSource

import rankfold as rf
from rankfold.workflows.reporting import report_errors

if __name__ == "__main__":
    store, out, seconds, where = sys.argv[1:]
    with report_errors(False):
        logging.basicConfig(format="news: %(asctime)s %(message)s", stream=sys.stdout)
        logging.getLogger("rankfold").setLevel(logging.INFO)

        def told(name: str, done: int, total: int) -> None:
            print(name, done, total, flush=True)

        rf.pca(
            CountedSource(rf.open(store), float(seconds), out + ".reads"),
            rank=8,
            memory="256MiB",
            out=out,
            progress=told,
            **json.loads(where),
        )
