#!/bin/bash
# Epilog of slurmd, run as root after each job of a node: with the last job of a GPU its MPS daemon ends, and its clock
# is given back. Exit code 1, if the clock cannot be given back, drains the node.
set -u
umask 022
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
STATE=/run/heshare-slurm    # the same in all three scripts
SITE_MHZ=                   # a clock that the site locks on its GPUs; empty: the GPU's own
# shellcheck disable=SC1091
[ ! -r /etc/heshare/slurm.sh ] || . /etc/heshare/slurm.sh

say() {
    echo "heshare epilog, job $SLURM_JOB_ID: $*" >&2
    logger -t heshare-slurm -- "epilog, job $SLURM_JOB_ID: $*" 2>/dev/null || :
}

stop_mps() {
    local note=$card/pipe/nvidia-cuda-mps-control.pid daemon
    [ -r "$note" ] || return 0
    daemon=$(cat "$note")
    grep -q '^nvidia-cuda-mps' "/proc/$daemon/comm" 2>/dev/null || return 0
    echo quit | CUDA_MPS_PIPE_DIRECTORY=$card/pipe CUDA_MPS_LOG_DIRECTORY=$card/log \
        timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1 9>&- || :
    for signal in 0 0 0 0 0 TERM 0 0 0 0 0 KILL; do
        kill -s "$signal" "$daemon" 2>/dev/null || return 0
        sleep 0.3
    done
}

give_clock_back() {
    local uuid
    [ -e "$card/clock" ] || return 0
    uuid=$(nvidia-smi -i "$gpu" --query-gpu=uuid --format=csv,noheader) || return 1
    if [ -n "$SITE_MHZ" ]; then
        timeout 20 nvidia-smi -i "$uuid" -lgc "$SITE_MHZ,$SITE_MHZ" >/dev/null || return 1
    else
        timeout 20 nvidia-smi -i "$uuid" -rgc >/dev/null || return 1
    fi
    rm -f "$card/clock"
}

code=0
# The job's GPU is that of its note, not of a variable: a job that never began has none.
for note in "$STATE"/gpu-*/jobs/"$SLURM_JOB_ID"; do
    [ -e "$note" ] || continue
    card=${note%/jobs/*}
    gpu=${card##*/gpu-}
    exec 9>"$card.lock"
    flock -w 60 9 || { say "$card.lock is held by another prolog or epilog"; exit 1; }
    rm -f "$note"
    if [ -z "$(ls -A "$card/jobs" 2>/dev/null)" ]; then
        stop_mps
        if give_clock_back; then
            rm -rf "$card"
        else
            say "GPU $gpu: its clock could not be given back; nvidia-smi -i $gpu -rgc"
            code=1
        fi
    fi
    exec 9>&-
done
rm -f "$STATE/job-$SLURM_JOB_ID.env"
exit $code
