#!/bin/bash
# A study on all nodes of a Slurm job: sbatch docs/slurm.sh STUDY.toml [more options of crossling study run]
#SBATCH --job-name=crossling
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
# Near the end of its time the job is put back into the queue, and goes on from where it was:
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

set -euo pipefail
source "${VENV:-.venv}/bin/activate"
export RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_MODE=token # or whoever reaches the port can run programs as you; older versions of Ray ignore it
ray get-auth-token --generate >/dev/null 2>&1 || true
head="$(hostname):${PORT:-6379}"

# This script runs on the first node of the job, which becomes the head; the others join it. Machines that come late,
# or come back, are noticed while the study runs.
ray start --head --port="${head##*:}"
trap 'ray stop --force >/dev/null' EXIT
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$(hostname)" \
        ray start --address="$head" --block &
fi

crossling study run "$@" --ray auto &
study=$!
trap 'kill $study; wait $study || true; scontrol requeue "$SLURM_JOB_ID"' USR1
wait $study
