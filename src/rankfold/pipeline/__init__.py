"""The machinery below all methods: from bytes of a store to sweeps in planned memory.

    chunks      bytes of chunk files, as arrays
    data        matrices: shape, type, grid, selections
    prepare     steps of preparation (`prepare=`), applied to values as they are read
    formats     one file per kind of store
    exporting   results in forms that other libraries use: AnnData, xarray, frames
    storage     files that a run leaves on disk, and checks that they are whole
    engine      sweeps over panels (rows in memory at a time) and over pairs of blocks of rows, the only
                makers of Dask tasks
    planning    estimates before a task runs: passes, bytes, memory, seconds
    importing   copies into stores that sweeps read well

    durable     flushes of data to the disk before it gets its name, and atomic renames
    outputs     rules for writing under a name that a user gives, and publishing there
    machine     place, time and command of an attempt at a run; one thread, everywhere; space on file
                systems: how much is free, and how much folders take
    removal     the only module that removes files and folders
    text        text from elsewhere (names, labels), with its control characters escaped for output; HTML
                tables that fit any width
    errors      the tree of errors; arguments in messages, as Python or the command line names them
    law         constraints on arrays and facts of a result, checked before a kernel uses them
    presentation  how results and sweeps of a method are shown and exported
    regular     opening of regular files only, and of documents of bounded size
    gpu         a GPU to compute on: its detection, arrays there, panels that stay there between passes
    units       bytes as people write them

A folder imports only from folders above it in this list, and from ``kernels``.
"""
