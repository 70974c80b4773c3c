# Becomes init of the container: container.sh ROOT.EXT4 DIR CGROUP [SHARE], as
# PID 1 of fresh namespaces. The host's root stays as it is: what is mounted here
# is seen here alone, and ends with this process.
set -euo pipefail

if [[ ${in_cgroup:-} != yes ]]; then
	mount --make-rprivate /
	echo 0 >"$3/cgroup.procs"
	in_cgroup=yes exec unshare --cgroup bash -c "$BASH_EXECUTION_STRING" "$0" "$@"
fi
image=$1 dir=$2 share=${4:-}

mount -t tmpfs -o size=2g tmpfs "$dir"
mkdir "$dir"/{lower,upper,work,root}
mount -o loop,ro,noload "$image" "$dir/lower"
mount -t overlay overlay -o "lowerdir=$dir/lower,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
cd "$dir/root"

# Settings that have no namespace are the host's: read-only.
mount -t proc proc proc
for f in sys sysrq-trigger irq bus fs; do
	[[ -e proc/$f ]] || continue
	mount --bind "proc/$f" "proc/$f"
	mount -o remount,bind,ro "proc/$f"
done
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup

mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
for n in null zero full random urandom tty; do
	touch "dev/$n"
	mount --bind "/dev/$n" "dev/$n"
done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mkdir share old
[[ -z $share ]] || mount --bind "$share" share

# What is of a machine, or of the host's kernel as a whole. Pages of manuals are
# unpacked here, as everywhere but in that image.
for u in systemd-sysctl.service systemd-modules-load.service systemd-remount-fs.service systemd-udevd.service \
	systemd-udev-trigger.service systemd-networkd.service vm-ready.service ssh.service \
	sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount dev-mqueue.mount; do
	ln -sfn /dev/null "etc/systemd/system/$u"
done
rm -f etc/dpkg/dpkg.cfg.d/99mmdebstrap

pivot_root . old
umount -l /old
mount --make-rshared / # as a machine has it: what is mounted later reaches services too
ip link set lo up
exec env -i container=plimsoll PATH=/usr/sbin:/usr/bin:/sbin:/bin setpriv \
	--bounding-set -sys_time,-sys_module,-syslog,-sys_rawio,-audit_control,-mac_admin,-bpf,-perfmon \
	/sbin/init systemd.unified_cgroup_hierarchy=1
