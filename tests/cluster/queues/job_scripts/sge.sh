#!/usr/bin/env bash

#$ -N rf-sge-0
#$ -q long.q
#$ -P physics
#$ -l h_rt=24:00:00
#$ -cwd
#$ -j y
#$ -S /bin/bash
#$ -o /dev/null
#$ -r n
#$ -pe smp 4
#$ -l h_vmem=4G
exec >/runs/pca.zarr.run/logs/rf-sge-0-$JOB_ID.out 2>/runs/pca.zarr.run/logs/rf-sge-0-$JOB_ID.err
export OMP_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export MKL_NUM_THREADS=1
export BLIS_NUM_THREADS=1
export NUMBA_NUM_THREADS=1
export RAYON_NUM_THREADS=1
export ZARR_THREADING__MAX_WORKERS=1
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False
export DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=120s
export PYTHONUNBUFFERED=1
exec python -m rankfold.cluster.slurm.node_worker tcp://driver:8786 --name dummy-name --nthreads 4 --memory-limit 16.00GiB --death-timeout 120 --local-directory "${TMPDIR:-/tmp}" --nanny --no-dashboard
