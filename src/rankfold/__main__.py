"""``python -m rankfold``."""

from rankfold.workflows.cli import main

main()
