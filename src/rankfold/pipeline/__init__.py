"""The machinery that knows no method: from bytes of a store to sweeps in planned memory.

    chunks      bytes of chunk files, as arrays
    data        what a matrix is: shape, type, grid, selections
    prepare     steps that numbers go through as they are read
    formats     one file per kind of store
    exporting   results in what other libraries go on with: AnnData, xarray, frames
    storage     what a run leaves on disk, and how it is known to be whole
    engine      sweeps over panels and over pairs of blocks, the only makers of Dask tasks
    planning    numbers before tasks: passes, bytes, memory, seconds
    importing   copies into stores that sweeps read well

    durable     data before names: flushes, and renames that are whole or not at all
    outputs     what may be written under a name that a user gives, and giving it that name
    machine     where an attempt at a run is made, when, and by which command
    removal     the only module that removes files and folders
    disk        room on file systems: what is free, and what folders take
    text        what others chose, shown and not obeyed
    wording     arguments in messages, as Python or the command line names them
    notebook    tables of HTML that fit any width
    errors      the tree of errors
    law         what arrays and facts of a result may be, before a kernel follows them
    regular     files opened for reading: regular ones alone, documents of bounded size
    blas        one thread, everywhere
    gpu         a device to compute on: whether there is one, arrays there, panels that stay
    units       bytes as people write them

Imports point down this list of folders, from the last to the first, and to ``kernels``.
"""
