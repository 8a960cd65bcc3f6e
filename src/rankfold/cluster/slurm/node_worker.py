"""A worker of a job that listens on one address of its node only.

    python -m rankfold.cluster.slurm.node_worker SCHEDULER OPTIONS...

Options are those of Dask's worker. Without ``--interface``, Dask's worker would listen on every address of
the node, and its pages of diagnostics do so in any case. Here both are bound to the interface, or to the
address by which this node reaches the scheduler.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

MODULE = "distributed.cli.dask_worker"


def bound_options(scheduler: str, options: Sequence[str]) -> list[str]:
    """Further options of Dask's worker that bind it and its dashboard to one address.

    ``scheduler`` is the address of the scheduler, ``options`` are those that the worker has already.
    """
    from distributed.comm.addressing import get_address_host
    from distributed.utils import get_ip, get_ip_interface

    if "--interface" in options:
        host = get_ip_interface(options[options.index("--interface") + 1])
        return ["--dashboard-address", f"{host}:0"]
    host = get_ip(get_address_host(scheduler))
    return ["--host", host, "--dashboard-address", f"{host}:0"]


def main(scheduler: str, *options: str) -> None:
    """Run Dask's worker with these options and those of ``bound_options``; ``scheduler`` is an address."""
    sys.argv = [MODULE, scheduler, *options, *bound_options(scheduler, options)]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
