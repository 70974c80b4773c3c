package velero

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// Root is the root directory of node-agents: the volumes of pods are where they
// look for them. It may be that of several nodes.
type Root string

// Mount makes the directories that a kubelet makes of a pod's volumes, which must
// be empty ones. A node-agent that starts wants one of each pod that runs on its
// node.
func (r Root) Mount(p *corev1.Pod) error {
	dir := filepath.Join(string(r), "host_pods", string(p.UID), "volumes", "kubernetes.io~empty-dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, v := range p.Spec.Volumes {
		if err := os.MkdirAll(filepath.Join(dir, v.Name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// NodeAgent plans Velero's own node-agent of a node, which is started by the
// caller: a process in a network namespace of its own, for its ports cannot be
// chosen. There must be the DaemonSet node-agent, whose pods it makes its data
// movers after, and the ConfigMap, when one is named.
func NodeAgent(ctx context.Context, c *cluster.Cluster, as *rest.Config, root Root, namespace, node, configMap string) (*cluster.Process, error) {
	outside, err := c.WriteKubeconfig("node-agent-"+node, as)
	if err != nil {
		return nil, err
	}
	kubeconfig := "/" + filepath.Base(outside)
	text, err := os.ReadFile(outside)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(string(root)+kubeconfig, text, 0o600); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(string(root), "tmp"), 0o755); err != nil {
		return nil, err
	}
	args := []string{"node-agent", "server", "--kubeconfig", kubeconfig, "--namespace", namespace, "--log-level", "debug"}
	if configMap != "" {
		args = append(args, "--node-agent-configmap", configMap)
	}
	p, err := c.Add(ctx, cluster.Velero, nil, []string{"NODE_NAME=" + node, "VELERO_NAMESPACE=" + namespace, "TMPDIR=/tmp"}, args...)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(as.Host)
	if err != nil {
		return nil, err
	}
	p.Apart(server.Host)
	if err := p.Within(string(root)); err != nil {
		return nil, err
	}
	p.ReadyWhen(works(p))
	return p, nil
}

// works asks whether a program of Velero's has begun to.
func works(p *cluster.Process) func(context.Context) error {
	return func(context.Context) error {
		if !strings.Contains(p.Log(), "Starting workers") {
			return fmt.Errorf("%s: its controllers do not run yet", p.Name())
		}
		return nil
	}
}
