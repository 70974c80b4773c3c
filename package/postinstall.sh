#!/bin/sh
# After an install or an upgrade, of Debian's kind or RPM's. Nothing is enabled,
# and nothing is started that did not run: what it does is configured first.
set -e
systemd-sysusers plimsoll.conf
systemd-tmpfiles --create plimsoll.conf
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart plimsoll-agent.service plimsoll-controller.service ||
	echo 'plimsoll: it does not run any more: systemctl status plimsoll-agent plimsoll-controller tells why' >&2
