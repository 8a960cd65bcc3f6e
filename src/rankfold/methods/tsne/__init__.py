"""Neighbor embedding in few dimensions, as t-SNE makes it.

arguments   types, defaults and limits of the arguments
request     parameters, checked
edges       edges of the graph of affinities, in memory
start       where vertices begin
repulsion   how hard all vertices push each other
grid        the same in a plane, by nodes and Fourier transforms
descent     steps that move all vertices
work        in this process, or by workers that exchange positions
settling    new rows in an embedding that stays
tsne        the task, and its plan
tasks       from what a caller says to a task
warm        compiled loops, run once
"""
