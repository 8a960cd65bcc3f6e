"""Kinds of attack, each a function of a bench, a seed and a number that gives one trial.

kills          signals to a command, or to one of its workers
damage         files of a run, or of a result, that are not what was written
power_loss     a file system that forgets what was not flushed; loop_device makes it
hostile        words, workflows and places nobody would give; hostile_stores the stores
"""
