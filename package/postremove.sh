#!/bin/sh
# After the files went. What was kept goes with a purge; RPM knows no other
# removal.
set -e
case "$1" in
purge | 0)
	rm -rf /var/lib/plimsoll /run/plimsoll
	! getent passwd plimsoll >/dev/null || userdel plimsoll
	! getent group plimsoll >/dev/null || groupdel plimsoll
	;;
esac
[ ! -d /run/systemd/system ] || systemctl daemon-reload
