"""A library that is loaded before others and lets files, clocks and connections of a command misbehave.

faults.c     what it does
faults.py    compiles it, and tells it what to do while commands run
"""
