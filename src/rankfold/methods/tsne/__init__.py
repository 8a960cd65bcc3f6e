"""Neighbor embedding in few dimensions, as t-SNE makes it.

arguments   types, defaults and limits of the arguments, and what steps follow from them
repulsion   repulsion between all vertices
grid        repulsion in a plane, by nodes and Fourier transforms
descent     steps that move all vertices, in one process or several; edges of the graph of affinities, in
            memory
transform   new rows placed in an embedding that stays fixed
tsne        the task, and its plan; initial positions of vertices; makes tasks from the arguments of a
            caller
"""
