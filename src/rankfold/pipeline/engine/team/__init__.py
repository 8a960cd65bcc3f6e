"""Processes that work at the same time, each on its part, and exchange their results.

exchange   arrays from each to all others, through files
team       tasks of a team, one in each process, which begin again when a process is lost or joins
"""
