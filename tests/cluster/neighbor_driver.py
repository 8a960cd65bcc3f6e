"""A driver that tests start, watch and kill: neighbors in small blocks, read as slowly as is asked.

python neighbor_driver.py STORE OUT SECONDS '{"workers": 2}'

It hurries as soon as there is a file OUT.hurry.
"""

from __future__ import annotations

import json
import logging
import sys

from slow_source import SlowSource

import rankfold as rf
from rankfold.pipeline.engine import pairs

if __name__ == "__main__":
    store, out, seconds, where = sys.argv[1:]
    logging.basicConfig(format="news: %(message)s", stream=sys.stdout)
    logging.getLogger("rankfold").setLevel(logging.INFO)
    pairs.BLOCK_ROWS = (250, 250)  # workers are told the edges of blocks

    def told(name: str, done: int, total: int) -> None:
        print(name, done, total, flush=True)

    source = SlowSource(rf.open(store), float(seconds), hurry=out + ".hurry")
    options = {"memory": "256MiB", "symmetric": "union", **json.loads(where)}
    try:
        rf.knn(source, 6, out=out, progress=told, **options)
    except rf.RankfoldError as error:
        print(f"error: {error}", flush=True)
        sys.exit(error.exit_code)
