#!/usr/bin/env bash

#PBS -N rf-pbs-0
#PBS -q workq
#PBS -A physics
#PBS -l select=1:ncpus=8:mem=32768mb:ngpus=1
#PBS -l walltime=4:00:00
#PBS -j oe
#PBS -o /dev/null
#PBS -r n
exec >/runs/pca.zarr.run/logs/rf-pbs-0-$PBS_JOBID.out 2>/runs/pca.zarr.run/logs/rf-pbs-0-$PBS_JOBID.err
cd "$PBS_O_WORKDIR"
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
module load python
exec python -m rankfold.cluster.slurm.node_worker tcp://driver:8786 --name dummy-name --nthreads 1 --memory-limit 32.00GiB --death-timeout 120 --local-directory "${TMPDIR:-/tmp}" --nanny --no-dashboard --resources GPU=1 --interface ib0
