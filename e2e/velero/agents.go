package velero

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// NodeAgent plans Velero's own node-agent of a node, which is started by the
// caller: a process in a network namespace of its own, for its ports cannot be
// chosen. There must be the DaemonSet node-agent, whose pods it makes its data
// movers after, and the ConfigMap, when one is named. It does not see the
// volumes of pods: it backs up and restores no file system.
func NodeAgent(ctx context.Context, c *cluster.Cluster, as *rest.Config, namespace, node, configMap string) (*cluster.Process, error) {
	kubeconfig, err := c.WriteKubeconfig("node-agent-"+node, as)
	if err != nil {
		return nil, err
	}
	args := []string{"node-agent", "server", "--kubeconfig", kubeconfig, "--namespace", namespace, "--log-level", "debug"}
	if configMap != "" {
		args = append(args, "--node-agent-configmap", configMap)
	}
	p, err := c.Add(ctx, cluster.Velero, nil, []string{"NODE_NAME=" + node, "VELERO_NAMESPACE=" + namespace}, args...)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(as.Host)
	if err != nil {
		return nil, err
	}
	p.Apart(server.Host)
	p.ReadyWhen(func(context.Context) error {
		if log := p.Log(); !strings.Contains(log, "Starting workers") {
			return fmt.Errorf("node-agent of %s: its controllers do not run yet", node)
		}
		return nil
	})
	return p, nil
}
