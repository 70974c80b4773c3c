#!/bin/sh
# After the files went. What was kept goes with a purge; RPM knows no other
# removal. State that another agent uses stays, such as one of the chart: it holds
# the lock on it, which the kernel lists by inode.
set -e
case "$1" in
purge | 0)
	used=$(stat -c %i /var/lib/plimsoll/state/agent.lock 2>/dev/null) || true
	if [ -n "$used" ] && grep -q ":$used " /proc/locks; then
		# The number of the user plimsoll may become another user's.
		! getent passwd plimsoll >/dev/null || chown -R --from=plimsoll root:root /var/lib/plimsoll
		echo 'plimsoll: /var/lib/plimsoll stays: another agent uses it. Once that is removed too: rm -r /var/lib/plimsoll' >&2
	else
		rm -rf /var/lib/plimsoll
	fi
	rm -rf /run/plimsoll
	! getent passwd plimsoll >/dev/null || userdel plimsoll
	! getent group plimsoll >/dev/null || groupdel plimsoll
	;;
esac
[ ! -d /run/systemd/system ] || systemctl daemon-reload
