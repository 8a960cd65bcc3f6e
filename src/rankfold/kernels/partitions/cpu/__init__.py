"""Tuned bodies for the host.

visits     neighbors of a row counted by partition
"""
