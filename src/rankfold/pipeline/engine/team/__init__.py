"""Processes that work at the same time, each on its part, and hand each other what they have.

exchange   arrays from each to all others, through files
team       tasks of a team, one in each process; who is missing, and who begins again
"""
