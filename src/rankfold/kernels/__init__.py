"""Numerics on arrays in memory: they read no files, move nothing between devices, know no Dask.

    linear        products, factorizations, sketches and sums of panels
    neighbors     nearest rows, and how many rows are nearer
    graph         weights of a graph of neighbors, and shortest paths along it
    layout        forces that move the vertices of a graph
    grid          sums over all pairs of points, by nodes or pair by pair
    bits          nearest rows among sets, by the members that two of them share
    similarity    kernel functions of all pairs of rows, and their products with vectors
    clustering    nearest centers of rows, and sums of clusters
    partitions    partitions that rows should visit, from those of their neighbors
    nonnegative   least squares and divergences over rows that are not negative
    sparse        products of sparse rows with blocks, and of columns with columns
    sums          sums over all pairs of points, exactly and by a tree
    hashing       digests at the speed of memory

Each folder is a family of kernels. A module there holds contracts: functions whose docstrings fix what is
computed, with reference bodies in NumPy. Tuned bodies of the same names lie in its subfolders ``cpu`` (numba)
and ``gpu`` (CuPy). ``_dispatch.py`` joins both and brings arrays into the order that a loop reads;
``_compiled.py`` keeps compiled loops on disk. Imports nothing of ours outside this folder.
"""
