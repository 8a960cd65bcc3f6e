"""From a matrix on disk to a result, in planned memory and few reads. Imports ``kernels`` only.

request     what was asked, checked           layout      orientation, method, widths, cuts
plan        passes, bytes, memory: numbers before tasks
source      the protocol of a matrix          sources/    one file per kind of store
readers/    files that go forward only        convert     another type, without silent loss
view        the matrix as long by short       blocks      grains, panels, streams
folds/      what a sweep does with a panel    sweep       the only maker of Dask tasks
earlier_lists  an earlier search, to be gone on with
pairs       blocks that meet, and in what order  pair_sweep  the other maker of Dask tasks
attempt     what a process holds for a sweep  scheduler   what a sweep needs of where it runs
fitted      a stored result as a model         summary     samples as what can be merged
sweep_plan  plans of a single sweep           shape_only  a matrix that is only planned with
methods/    one method, one file              run         sweeps of one request, and their tallies
quality     error estimates                   finite      NaN and Inf, counted and refused
checkpoint  parts, whole or not at all        rundir      the folder of a run, and its lock
narrow      intermediates on scratch          result      Zarr groups with provenance
faithfulness_request, faithfulness_plan  ranks: what is asked, and its numbers
whole_chunks  chunks of a result, as files
ingest      import into well-cut stores       info        what a store is
temporary   folders of results that nobody keeps  editions    when methods give other bytes
journal  what happened when, and where
memory      what a process really holds       blas        one thread, everywhere
warm        compile before the baseline       units       bytes as people write them
errors      the tree of errors                sample      rows looked at before any pass
"""
