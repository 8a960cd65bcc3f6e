#!/usr/bin/env bash

#SBATCH -J rankfold-0
#SBATCH -n 1
#SBATCH --cpus-per-task=16
#SBATCH --mem=51200M
#SBATCH -t 04:00:00
#SBATCH --error=/runs/pca.zarr.run/logs/rankfold-0-%J.err
#SBATCH --output=/runs/pca.zarr.run/logs/rankfold-0-%J.out
#SBATCH --no-requeue
#SBATCH --constraint=cpu
#SBATCH --qos=regular
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
exec python -m rankfold.cluster.slurm.node_worker tcp://driver:8786 --name dummy-name --nthreads 16 --memory-limit 50.00GiB --death-timeout 120 --local-directory "/tmp" --nanny --no-dashboard
