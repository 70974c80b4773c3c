package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"
)

// The rule of the demonstration: at 2 times evictionHard, i.e. 3 GiB, it is
// hard, long before this host is really short of memory.
const agentConfig = `apiVersion: plimsoll.dev/v1alpha1
kind: AgentConfiguration
kubernetes: {kubeconfig: %s, node: %s}
api: {socket: %s}
state: {dir: %s}
web: {listenAddresses: ["127.0.0.1:0"]}
eviction: {dryRun: false, reportOnly: 0s, limits: {perOwnerHour: 3600}} # an agent that knows nothing begins with empty budgets
plugins: {memoryStall: {kubeletEvictionHard: 1536Mi}}
vgdp: {dryRun: false, concurrency: 2}
`

func (s *show) socket() string { return filepath.Join(s.dir, "plimsoll.sock") }

// startAgent starts it with the rights that deploy/ grants, by a token that is
// bound to the Node.
func (s *show) startAgent(ctx context.Context) (undo func() error, err error) {
	kubeconfig, err := s.cluster.ServiceAccount(ctx, "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: nodeName})
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(agentConfig, kubeconfig, nodeName, s.socket(), filepath.Join(s.dir, "state"))
	if err := os.WriteFile(s.config("agent"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	undo, err = s.daemon("agent")
	if err != nil {
		return nil, err
	}
	err = s.until(ctx, "the agent is ready", func() error { return s.ask(ctx, "/-/ready", nil) })
	if err != nil {
		said, _ := os.ReadFile(s.log("agent"))
		return undo, fmt.Errorf("%w\n%s", err, said)
	}
	s.say("plimsoll agent is ready, with the rights of deploy/rbac.yaml")
	return undo, nil
}

// ask the agent on its socket.
func (s *show) ask(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket())
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s: %s", resp.Status, said)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// watchEviction tells what the agent decides until a pod is gone.
func (s *show) watchEviction(ctx context.Context) (undo func() error, err error) {
	told := map[string]bool{}
	return nil, s.until(ctx, "a pod is evicted and gone", func() error {
		var said struct {
			Decisions []evict.Decision `json:"decisions"`
		}
		if err := s.ask(ctx, "/api/v1/decisions", &said); err != nil {
			return err
		}
		err := errors.New("nobody is gone yet")
		for _, d := range slices.Backward(said.Decisions) {
			if !told[d.ID] {
				told[d.ID] = true
				s.say("%s: %s", d.Level(), d.Reason)
			}
			if !d.TerminatedAt.IsZero() {
				err = nil
			}
		}
		return err
	})
}

func (s *show) explain(ctx context.Context) (undo func() error, err error) {
	gone, err := s.evicted(ctx)
	if err != nil {
		return nil, err
	}
	s.say("plimsoll explain eviction %s says:", gone)
	return nil, s.print(exec.CommandContext(ctx, s.plimsoll, "explain", "eviction", gone, "--api.socket", s.socket()).CombinedOutput())
}

// evicted is the name of the pod that went.
func (s *show) evicted(ctx context.Context) (string, error) {
	var said struct {
		Decisions []evict.Decision `json:"decisions"`
	}
	if err := s.ask(ctx, "/api/v1/decisions", &said); err != nil {
		return "", err
	}
	var names []string
	for _, d := range said.Decisions {
		if c, some := d.FirstEvicted(); some {
			names = append(names, c.Pod.Namespace+"/"+c.Pod.Name)
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("want exactly one pod evicted, got %v", names)
	}
	return names[0], nil
}

// check that exactly the presser went and that it does not come back here.
func (s *show) check(ctx context.Context) (undo func() error, err error) {
	gone, err := s.evicted(ctx)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(gone, "default/presser-") {
		return nil, fmt.Errorf("the wrong pod went: %s", gone)
	}
	if _, err := s.running(ctx, "steady"); err != nil {
		return nil, err
	}
	node, err := s.cluster.Client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, t := range node.Spec.Taints {
		s.say("the Node is tainted: %s:%s", t.Key, t.Effect)
	}
	for _, c := range node.Status.Conditions {
		if strings.HasPrefix(string(c.Type), names.Prefix) {
			s.say("the Node's condition: %s=%s (%s)", c.Type, c.Status, c.Reason)
		}
	}
	pods, err := s.pods(ctx, "presser")
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodPending {
			s.say("its successor %s is Pending: the taint keeps it away", p.Name)
		}
	}
	s.say("exactly one pod was evicted, the one that pressed; cleaning up")
	return nil, nil
}
