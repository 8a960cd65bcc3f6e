"""Layouts of graphs of neighbors in few dimensions, as UMAP makes them.

arguments        types, defaults and limits of the arguments, and the curve that forces follow from
edges            the edges of a graph that pull, in memory; losses of a layout: joined vertices that lie
                 apart, and others that lie together
start            initial positions of vertices, and of rows that are added to a layout; initial positions of
                 components, side by side
density          forces that keep rows apart that are apart in the data
layout           epochs that move all vertices, a group after the other
work             a layout run in this process, or by workers that exchange positions
transform        new rows placed in a layout that stays fixed
umap             the task, and its plan
"""
