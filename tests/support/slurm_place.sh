#!/bin/bash
# A private place with Debian's Slurm: an overlay over this machine's files, in namespaces that end with standard input.
#
# Usage: unshare --mount --pid --fork --kill-child slurm_place.sh FOLDER [BOUND...]
# FOLDER becomes a file system in memory; BOUND are folders of other file systems that the place shows as they are. It
# prints "ready" once Slurm is installed there and the network is a private one.
set -eu
if [ "${1-}" = inside ]; then
    mount -t proc proc /proc
    # Slurm needs an address that is not a loopback one, or names resolve to nothing; nothing is ever sent to it.
    python3 - <<'P'
import fcntl, socket, struct
address = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton("10.255.255.1"))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
    fcntl.ioctl(plain, 0x8914, struct.pack("16sH22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    fcntl.ioctl(plain, 0x8916, struct.pack("16s8s16x", b"lo:1", address))  # SIOCSIFADDR
P
    echo ready
    read -r _ || exit 0    # as the first process of its namespace, bash also collects what has ended
fi
mount --make-rprivate /
folder=$1
shift
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
root=$folder/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount --rbind /dev "$root/dev"
mount --bind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
for bound in "$@"; do
    mkdir -p "$root$bound"
    mount --rbind "$bound" "$root$bound"
done
# slurmd looks for cgroups; these are none of the machine's.
mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
mkdir "$root/sys/fs/cgroup/systemd"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
{
    chroot "$root" apt-get update -qq
    chroot "$root" apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge
} >"$folder/apt.log" 2>&1 || {
    tail -5 "$folder/apt.log" >&2
    exit 1
}
cp "$0" "$root/tmp/place.sh"
exec unshare --net chroot "$root" /bin/bash /tmp/place.sh inside
