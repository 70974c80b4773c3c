#!/bin/sh
# Before the files go: everything ends, and what the agent has put on its node is
# taken away again. An upgrade goes on.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
systemctl disable --now --quiet plimsoll-agent.socket plimsoll-agent.service plimsoll-controller.service plimsoll.slice || true

config=/etc/plimsoll/agent.yaml
node=$(plimsoll config print $config | sed -n '/^kubernetes:/,/^[^ ]/ s/^  node: *"\{0,1\}\([^"]*\).*/\1/p') || true
node=${node:-$(uname -n | tr '[:upper:]' '[:lower:]')}
timeout 120 plimsoll release --node "$node" --config $config || {
	echo "plimsoll: taints, conditions and limits of its own may stay on $node (above is why). From where the API server answers:"
	echo "plimsoll: plimsoll release --node $node --kubeconfig FILE"
} >&2
