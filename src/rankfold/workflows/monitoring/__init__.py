"""Reports of a workflow for people who do not watch it: metrics for Prometheus, a line of news.

outcome       facts of a stage that is done
metrics       the metrics, and their file
openmetrics   numbers as text that Prometheus reads
news          the outcome of a run in one line
"""
