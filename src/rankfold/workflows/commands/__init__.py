"""What each command does between its options and the library.

reduce     svd, pca, qr, nmf, knn and their plan
exporting  export and plot
model      transform, reconstruct and check
importing  import and info
flow       run, status, schema and example: workflows from a file
report     the page of what has run
demo       the first run
submit     a workflow, or any of them, as one job of SLURM, or on processes of MPI
operate    logs, cancel and schedule
profile    descriptions of sites to begin with
doctor     what a run needs, checked before the first one
verify     whether a result is as it was written
"""
