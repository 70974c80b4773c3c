#!/bin/sh
# Records a pod with one container, and a service whose PSI is switched off, on
# this machine's cgroup hierarchies, as one text archive on stdout (a line
# "-- path --", then the file). Needs root and cgroup v1 with a unified
# hierarchy beside it; the argument is a directory on a real block device.
#
# The load, in the pod's container: dd writes 8 MiB and reads 32 MiB past the
# page cache, then a loop burns a second of CPU under a quota of 20 %.
set -eu
file=$1/plimsoll-record.$$
dd if=/dev/zero of="$file" bs=1M count=32 conv=fsync 2>/dev/null
# blk-throttle counts only on whole devices that ever had a rule.
device=$(stat -c '%Hd:%Ld' "$file")
top=/sys/fs/cgroup
name=plimsoll-record
pod=$name/kubepods/burstable/pod6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11
service=$name/cron.service
trees="memory cpu cpuacct blkio unified"

enter() { for t in $trees; do sh -c 'echo $PPID' >"$top/$t/$1/cgroup.procs"; done; }
remove() {
  kill "$load" "$idle" 2>/dev/null || true
  wait
  for t in $trees; do find "$top/$t/$name" -depth -type d -exec rmdir {} \;; done
  rm -f "$file"
}
for t in $trees; do mkdir -p "$top/$t/$pod/c0ffee" "$top/$t/$service"; done
load= idle=
trap remove EXIT
echo "$device 1099511627776" >"$top/blkio/$pod/c0ffee/blkio.throttle.read_bps_device"
echo 20000 >"$top/cpu/$pod/c0ffee/cpu.cfs_quota_us"
echo 268435456 >"$top/memory/$pod/memory.limit_in_bytes"
echo 0 >"$top/unified/$service/cgroup.pressure"

(enter "$pod/c0ffee"
 dd if=/dev/zero of="$file" bs=1M count=8 oflag=direct conv=notrunc 2>/dev/null
 dd if="$file" of=/dev/null bs=1M count=32 iflag=direct 2>/dev/null
 timeout 1 sh -c 'while :; do :; done' || true
 exec sleep 60) & load=$!
(enter "$service"; exec sleep 60) & idle=$!
sleep 4

echo "Recorded on Linux $(uname -r), $(nproc) CPUs, by probes/cgroup/testdata/record.sh."
cd "$top"
for f in unified/cgroup.controllers $(for t in $trees; do echo "$t/cgroup.procs"; done) \
  $(for t in $trees; do find "$t/$pod" "$t/$service" -type f \
    \( -name cgroup.procs -o -name memory.usage_in_bytes -o -name memory.limit_in_bytes \
    -o -name memory.failcnt -o -name memory.oom_control -o -name memory.stat \
    -o -name cpu.stat -o -name cpuacct.usage -o -name cgroup.pressure -o -name '*.pressure' \
    -o -name 'blkio.throttle.io_service*_recursive' \); done | LC_ALL=C sort); do
  echo "-- $f --"
  case $f in
  */$name/*) cat "$f" ;;
  *) head -n 1 "$f" ;;
  esac
done
