"""Functions that implement the commands, from options of the command line to calls of the library.

reduce     svd, pca, qr, nmf, knn and their plan
exporting  export and plot
model      transform, reconstruct and check
importing  import and info
flow       run, status, schema and example: workflows from a file
report     the page about a run
demo       components of example photographs
submit     a workflow, or any command, as one job of SLURM, or on processes of MPI
operate    logs, cancel and schedule
profile    profiles of sites to start from
doctor     checks before the first run
verify     checks that a result is unchanged since it was written
"""
