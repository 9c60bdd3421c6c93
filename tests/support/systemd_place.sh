#!/bin/bash
# A private systemd as process 1 of namespaces of its own, over an overlay of this machine's files, in a cgroup.
#
# Usage: unshare --mount --pid --fork --kill-child systemd_place.sh FOLDER CGROUP [FROM:TO...]
# FOLDER becomes a file system in memory, CGROUP is an empty cgroup (version 2); folders FROM are shown in the place at TO.
set -eu
if [ "${1-}" = inside ]; then
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    export container=private
    exec /lib/systemd/systemd --system --unit=place.target --log-target=console --show-status=no </dev/null
fi
mount --make-rprivate /
folder=$1 cgroup=$2
shift 2
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
root=$folder/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount --rbind /dev "$root/dev"
for memory in run tmp var/tmp dev/shm; do
    mount -t tmpfs tmpfs "$root/$memory"
    chmod 1777 "$root/$memory"
done
chmod 755 "$root/run"
install -d -m 1777 "$root/run/lock"
for bound in "$@"; do
    mkdir -p "$root${bound#*:}"
    mount --rbind "${bound%:*}" "$root${bound#*:}"
done
rm -rf "$root/etc/systemd/system" "$root/opt/heshare" "$root/etc/heshare" "$root/var/lib/heshare"
mkdir -p "$root/etc/systemd/system"
printf '[Unit]\nDescription=A place for tests\n' >"$root/etc/systemd/system/place.target"
cp "$0" "$root/tmp/place.sh"
echo $$ >"$cgroup/cgroup.procs"
exec unshare --net --cgroup --uts --ipc chroot "$root" /bin/bash /tmp/place.sh inside
