"""A file server whose clients learn late what others have made.

A client of NFS that has once asked for a name in vain goes on to miss it as long as it trusts what it knows
of the folder, up to a minute, though another client has made it meanwhile. Here each process of a command is
such a client, for half a second, three or 30 seconds. The command must end with the same bytes or refuse in
one message; and the same command again, on a file server that is quick, must end with the same bytes.
"""

from __future__ import annotations

import time

from attacks.clock import faults_of
from attacks.workers import WITH_PROCESSES
from trials import Bench, Trial, chance, judge, turn

LATE_SECONDS = (0.5, 3.0, 30.0)


def file_server(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: processes that see names late, and the command again."""
    draw, began = chance("file_server", seed, number), time.monotonic()
    case = turn(WITH_PROCESSES, number, seed)
    bench.answer(case)
    bench.clear()
    faults, late = faults_of(bench), draw.choice(LATE_SECONDS)
    faults.set(late_us=late * 1e6)
    outcome = bench.command(case, env=faults.env)
    verdict, said = judge(outcome, bench.difference(case, outcome))
    faults.set()
    verdict, said = bench.ends_again(case, verdict, said)
    attack, seconds = f"names are seen {late:g} s late", time.monotonic() - began
    return Trial("file_server", seed, number, case.name, attack, "", verdict, outcome.code, said, seconds)
