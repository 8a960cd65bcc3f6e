"""Layouts of graphs of neighbors in few dimensions, as UMAP makes them.

arguments        types, defaults and limits of the arguments, and the curve that forces follow from
edges            the edges of a graph that pull, in memory; losses of a layout: joined vertices that lie
                 apart, and others that lie together
density          forces that keep rows apart that are apart in the data
layout           epochs that move all vertices, a group after the other, in one process or several
transform        new rows placed in a layout that stays fixed
umap             the task, and its plan
"""
