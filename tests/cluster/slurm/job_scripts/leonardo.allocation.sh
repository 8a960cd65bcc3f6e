#!/usr/bin/env bash
#SBATCH --job-name=rankfold-pca
#SBATCH --output=rankfold-pca-%j.log
#SBATCH --open-mode=append
#SBATCH --partition=boost_usr_prod
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --mem=481280M
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@1440
#SBATCH --requeue

asked= driver=
trap 'asked=yes; [ -z "$driver" ] || kill -USR1 "$driver"' USR1
export RANKFOLD_PROFILE=leonardo
python -m rankfold pca store.zarr --rank 50 --out pca.zarr --cluster allocation &
driver=$!
[ -z "$asked" ] || kill -USR1 "$driver"
while :; do
    wait "$driver"
    code=$?
    kill -0 "$driver" 2>/dev/null || break
done

# 138: the signal came before the driver listened.
[ "$code" -ne 138 ] || code=75
if [ "$code" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ]; then
    echo "rankfold: more to do; requeueing job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1))"
    scontrol requeue "$SLURM_JOB_ID" && sleep 600
fi
exit "$code"
