"""Neighbor embedding in few dimensions, as t-SNE makes it.

arguments   types, defaults and limits of the arguments, and what steps follow from them
repulsion   repulsion between all vertices
grid        repulsion in a plane, by nodes and Fourier transforms
descent     steps that move all vertices; edges of the graph of affinities, in memory
work        a descent run in this process, or by workers that exchange positions
transform   new rows placed in an embedding that stays fixed
tsne        the task, and its plan; initial positions of vertices; makes tasks from the arguments of a
            caller
"""
