#!/usr/bin/env bash

#BSUB -J rf-lsf-0
#BSUB -q normal
#BSUB -P "physics"
#BSUB -n 4
#BSUB -R "span[hosts=1]"
#BSUB -M 17179870
#BSUB -W 0:30
#BSUB -o /dev/null
#BSUB -rn
#BSUB -R "rusage[mem=16GB]"
exec >/runs/pca.zarr.run/logs/rf-lsf-0-$LSB_JOBID.out 2>/runs/pca.zarr.run/logs/rf-lsf-0-$LSB_JOBID.err
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
