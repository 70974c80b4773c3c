#!/bin/sh
# Before the files go: everything ends, and what the agent has put on its node is
# taken away again. An upgrade goes on.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
systemctl disable --now --quiet plimsoll-agent.socket plimsoll-agent.service plimsoll-controller.service plimsoll.slice || true

config=/etc/plimsoll/agent.yaml
node=$(plimsoll config print $config | sed -n '/^kubernetes:/,/^[^ ]/ s/^  node: *"\{0,1\}\([^"]*\).*/\1/p') || true
node=${node:-$(uname -n | tr '[:upper:]' '[:lower:]')}
if ! timeout 120 plimsoll release --node "$node" --config $config; then
	# Another agent, such as one of the chart, holds the lock on its state, which the
	# kernel lists by inode.
	used=$(stat -c %i /var/lib/plimsoll/state/agent.lock 2>/dev/null) || true
	if [ -n "$used" ] && grep -q ":$used " /proc/locks; then
		echo "plimsoll: taints, conditions and limits on $node stay: another agent runs here and looks after them"
	else
		echo "plimsoll: taints, conditions and limits of its own may stay on $node (above is why). From where the API server answers:"
		echo "plimsoll: plimsoll release --node $node --kubeconfig FILE"
	fi >&2
fi
