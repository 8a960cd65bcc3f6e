"""The ``rankfold`` command, and ``python -m rankfold``."""

import signal


def main() -> None:
    """Load the command line and run it. Ctrl-C while it loads ends it without a word: nothing has begun."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rankfold.workflows.cli import main as run
    from rankfold.workflows.reporting import DRAINS

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    try:
        run()
    finally:
        # It is done, well or not, and its exit code is known. The interpreter takes its own handlers away
        # while it ends: a signal would change the code then.
        for number in (signal.SIGINT, *DRAINS):
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
