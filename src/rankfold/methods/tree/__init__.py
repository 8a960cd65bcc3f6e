"""Points of few dimensions, all of them in memory, in a tree.

coordinates   rows of a matrix as points: periodic boxes, the sphere
points        the tree, read and arranged by the process that leads
queries       points whose neighbors are wanted, panel by panel
nearest       nearest points, into the chunks of a result
search        a search for the nearest: its plan, and its work
plan          what a tree takes, and when it is worth it
warm          compiled loops, run once
"""
