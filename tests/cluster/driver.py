"""A driver that tests start, watch and kill: components of a store, read as slowly as is asked.

python driver.py STORE OUT SECONDS '{"workers": 2}'
"""

from __future__ import annotations

import json
import logging
import sys

from slow_source import SlowSource

import rankfold as rf

if __name__ == "__main__":
    store, out, seconds, where = sys.argv[1:]
    logging.basicConfig(format="news: %(message)s", stream=sys.stdout)
    logging.getLogger("rankfold").setLevel(logging.INFO)

    def told(name: str, done: int, total: int) -> None:
        print(name, done, total, flush=True)

    try:
        rf.pca(
            SlowSource(rf.open(store), float(seconds)),
            rank=8,
            memory="256MiB",
            out=out,
            progress=told,
            **json.loads(where),
        )
    except rf.RankfoldError as error:
        print(f"error: {error}", flush=True)
        sys.exit(error.exit_code)
