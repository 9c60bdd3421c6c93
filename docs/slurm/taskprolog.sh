#!/bin/sh
# TaskProlog of slurmd, run as the user before each task: the GPU, MPS daemon and share that the prolog noted.
# Slurm makes a job's variables when it is submitted; the place that a plan gave it later is not in them.
note=/run/heshare-slurm/job-${SLURM_JOB_ID}.env
[ -r "$note" ] || exit 0
sed 's/^/export /' "$note"
