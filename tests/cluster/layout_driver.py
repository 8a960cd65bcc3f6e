"""A driver that tests start, watch and kill: a layout with checkpoints a few times a second.

python layout_driver.py GRAPH OUT 0 '{"workers": 2}'
"""

from __future__ import annotations

import json
import logging
import sys

import rankfold as rf
from rankfold.pipeline.engine import sweep

EPOCHS = 600
DESCENT = {"perplexity": 3, "n_iter": 750, "init": "random"}
"""Steps of t-SNE, of which there is a checkpoint every fifty."""

if __name__ == "__main__":
    graph, out, _, where = sys.argv[1:]
    logging.basicConfig(format="news: %(message)s", stream=sys.stdout)
    logging.getLogger("rankfold").setLevel(logging.INFO)
    sweep.SEGMENT_SECONDS = 0.3  # workers are told how often

    def told(name: str, done: int, total: int) -> None:
        print(name, done, total, flush=True)

    try:
        options = {"memory": "256MiB", **json.loads(where)}
        if options.pop("method", "umap") == "tsne":
            rf.tsne(graph, **DESCENT, out=out, progress=told, **options)
        else:
            rf.umap(graph, out=out, progress=told, **{"n_epochs": EPOCHS, **options})
    except rf.RankfoldError as error:
        print(f"error: {error}", flush=True)
        sys.exit(error.exit_code)
