"""Reports on a workflow that runs unattended: metrics for Prometheus, and a one-line summary of each run.

metrics       the metrics, and their file; metrics as text that Prometheus reads
news          the outcome of a run in one line; facts of a stage that is done
"""
