"""The machinery below all methods: from bytes of a store to sweeps in planned memory.

    chunks      bytes of chunk files, as arrays
    data        matrices: shape, type, grid, selections
    prepare     steps that numbers go through as they are read
    formats     one file per kind of store
    exporting   results in forms that other libraries use: AnnData, xarray, frames
    storage     files that a run leaves on disk, and checks that they are whole
    engine      sweeps over panels and over pairs of blocks, the only makers of Dask tasks
    planning    numbers before tasks: passes, bytes, memory, seconds
    importing   copies into stores that sweeps read well

    durable     data before names: flushes, and renames that are whole or not at all
    outputs     rules for writing under a name that a user gives, and publishing there
    machine     place, time and command of an attempt at a run
    removal     the only module that removes files and folders
    disk        space on file systems: how much is free, and how much folders take
    text        foreign text, made harmless for output
    wording     arguments in messages, as Python or the command line names them
    notebook    HTML tables that fit any width
    errors      the tree of errors
    law         constraints on arrays and facts of a result, checked before a kernel uses them
    regular     opening of regular files only, and of documents of bounded size
    blas        one thread, everywhere
    gpu         a device to compute on: its detection, arrays there, panels that stay
    units       bytes as people write them

Imports point down this list of folders, from the last to the first, and to ``kernels``.
"""
