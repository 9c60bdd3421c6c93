#!/bin/bash
# Prolog of slurmd, run as root before each job of a node: MPS for its GPU, the clock of the plan, the job's variables.
#
# It acts on jobs with the comment that `heshare slurm` wrote, whose share and clock it sets, and on other jobs of gres
# mps, whose share is Slurm's and whose clock stays. Exit code 1 drains the node; since any user can write a comment, none
# leads to that: where its share cannot be set, the job runs without it, and a line in the log says so.
# Settings: /etc/heshare/slurm.sh may set the variables of the next lines.
set -u
umask 022
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
STATE=/run/heshare-slurm    # of this boot; the same in all three scripts
LEAST_MHZ=                  # clocks of comments outside are not set; without both, none is
MOST_MHZ=
# shellcheck disable=SC1091
[ ! -r /etc/heshare/slurm.sh ] || . /etc/heshare/slurm.sh

say() {
    echo "heshare prolog, job $SLURM_JOB_ID: $*" >&2
    logger -t heshare-slurm -- "prolog, job $SLURM_JOB_ID: $*" 2>/dev/null || :
}
fail() {
    say "$*"
    [ "$planned" = no ] || exit 0
    exit 1
}
is_number() { case "$1" in '' | *[!0-9]*) return 1 ;; esac; [ "${#1}" -le 5 ]; }

share=${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-}
planned=no
clock=
set -f
# The words of a comment are its fields.
# shellcheck disable=SC2086
set -- ${SLURM_JOB_COMMENT-}
set +f
if [ "${1-}" = heshare ]; then
    planned=yes
    for word in "$@"; do
        case "$word" in
            mps_pct=*) is_number "${word#*=}" && [ "${word#*=}" -ge 1 ] && [ "${word#*=}" -le 100 ] && share=${word#*=} ;;
            sm_mhz=*) is_number "${word#*=}" && clock=${word#*=} ;;
        esac
    done
fi

[ -n "$share" ] || exit 0
gpu=${SLURM_JOB_GPUS-}
is_number "$gpu" || fail "a share of one GPU was expected, found GPUs '$gpu'"

card=$STATE/gpu-$gpu
mkdir -p "$STATE" || fail "$STATE cannot be made"
exec 9>"$card.lock" || fail "$card.lock cannot be opened"
flock -w 60 9 || fail "$card.lock is held by another prolog or epilog"
mkdir -p "$card/jobs" "$card/pipe" "$card/log" || fail "$card cannot be made"
# The job's note comes first: by it the epilog gives back what this script changes.
: >"$card/jobs/$SLURM_JOB_ID" || fail "$card/jobs cannot be written"
uuid=$(nvidia-smi -i "$gpu" --query-gpu=uuid --format=csv,noheader) || fail "GPU $gpu does not answer"

note=$card/pipe/nvidia-cuda-mps-control.pid
runs() { [ -r "$note" ] && grep -q '^nvidia-cuda-mps' "/proc/$(cat "$note")/comm" 2>/dev/null; }
if ! runs; then
    # The daemon must not inherit the lock.
    CUDA_VISIBLE_DEVICES=$uuid CUDA_MPS_PIPE_DIRECTORY=$card/pipe CUDA_MPS_LOG_DIRECTORY=$card/log \
        timeout 20 setsid nvidia-cuda-mps-control -d 9>&- </dev/null >"$card/log/start.log" 2>&1 ||
        fail "MPS did not start on GPU $gpu: $(tail -n 3 "$card/log/start.log")"
    started=no
    for _ in $(seq 100); do
        if runs; then
            started=yes
            break
        fi
        sleep 0.1
    done
    [ "$started" = yes ] || fail "MPS has no daemon on GPU $gpu after 10 s: $(tail -n 3 "$card"/log/*.log)"
fi

# The clock is noted before it is set: the epilog of the last job of the GPU gives it back.
if [ -n "$clock" ] && [ "$clock" -ge "${LEAST_MHZ:-99999}" ] && [ "$clock" -le "${MOST_MHZ:-0}" ]; then
    echo "$clock" >"$card/clock"
    timeout 20 nvidia-smi -i "$uuid" -lgc "$clock,$clock" >/dev/null || say "GPU $gpu keeps its clock: $clock MHz was refused"
elif [ -n "$clock" ]; then
    say "GPU $gpu keeps its clock: $clock MHz is not in ${LEAST_MHZ:-(unset)} to ${MOST_MHZ:-(unset)} MHz"
elif [ "$planned" = yes ] && [ -e "$card/clock" ]; then
    # This plan leaves the clock to the GPU.
    if timeout 20 nvidia-smi -i "$uuid" -rgc >/dev/null; then
        rm -f "$card/clock"
    else
        say "GPU $gpu: its clock could not be unlocked"
    fi
fi

printf '%s\n' "CUDA_VISIBLE_DEVICES=$uuid" "CUDA_MPS_PIPE_DIRECTORY=$card/pipe" \
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$share" >"$STATE/.job-$SLURM_JOB_ID" || fail "$STATE cannot be written"
mv -f "$STATE/.job-$SLURM_JOB_ID" "$STATE/job-$SLURM_JOB_ID.env" || fail "$STATE cannot be written"
exit 0
