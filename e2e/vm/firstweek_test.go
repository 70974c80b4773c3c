package vm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/prometheus"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// TestFirstWeek plays docs/first-week.md in an hour: each command of the document as it
// is there, on a node with a real kubelet, with real Helm, kubectl and Prometheus. What
// a user sees is in the log.
func TestFirstWeek(t *testing.T) {
	if !long() {
		t.Skip("half an hour of an emulated machine: make e2e")
	}
	t.Parallel()
	prometheus.Skip(t)
	w := newWeek(t)
	for _, day := range []struct {
		name string
		play func(*week)
	}{
		{"install and record", (*week).installs},
		{"a restart", (*week).restarts},
		{"scrape", (*week).scrapes},
		{"an alert under load", (*week).alerts},
		{"look at what would have happened", (*week).looks},
		{"advise", (*week).advises},
		{"act", (*week).acts},
	} {
		if !t.Run(day.name, func(t *testing.T) { day.play(w.of(t)) }) {
			return
		}
	}
	w.of(t).playedAll()
}

// week is a node, its Prometheus, and a user at a shell.
type week struct {
	*kubeNode
	dir        string // the shell's
	env        []string
	played     map[string]bool // headings of the document
	whole      *testing.T
	prometheus *string // its address
}

// of is the same week, for a subtest.
func (w *week) of(t *testing.T) *week {
	day := *w
	day.kubeNode = w.with(t)
	return &day
}

func newWeek(t *testing.T) *week {
	t.Helper()
	w := &week{played: map[string]bool{}, dir: t.TempDir(), whole: t, prometheus: new(string)}
	// What chart and manifest name, as of an image that is imported.
	text, err := os.ReadFile(filepath.Join(chart.Dir, "Chart.yaml"))
	require.NoError(t, err)
	var about struct{ AppVersion string }
	require.NoError(t, yaml.Unmarshal(text, &about))
	tools := w.tools(t)
	w.kubeNode = startKubelet(t, kubeOptions{kubelet: "syncFrequency: 10s\n", serves: true, version: about.AppVersion})
	w.env = append(tools, "HOME="+w.dir, "KUBECONFIG="+w.cluster.Kubeconfig, "NODE="+nodeName)
	deployed, err := filepath.Abs(chart.Dir)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(deployed, filepath.Join(w.dir, "deploy"))) // as in a clone
	w.reachAPIServer()
	w.withPages(1000)
	w.deploy("shop", idle())
	w.running("shop")
	w.stage("a pod works on the node")
	return w
}

// tools is the shell's PATH.
func (w *week) tools(t *testing.T) []string {
	t.Helper()
	bin := filepath.Join(w.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	for _, name := range []string{cluster.Helm, cluster.Kubectl} {
		program, err := cluster.Program(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(program, filepath.Join(bin, name)))
	}
	build(t, ".", filepath.Join(bin, "kubectl-plimsoll"))
	return []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
}

// block of a document that a shell plays, or another one.
type block struct{ heading, language, text string }

func blocksOf(t *testing.T, document string) (list []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", document))
	require.NoError(t, err)
	heading, found := "", regexp.MustCompile("(?ms)^## ([^\n]*)$|^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		if m[1] != "" {
			heading = m[1]
			continue
		}
		list = append(list, block{heading, m[2], m[3]})
	}
	return list
}

// play the commands below a heading of the document, and give what the user saw.
// What a shell has been told to remember it remembers.
func (w *week) play(heading string) (saw string) {
	w.t.Helper()
	var script strings.Builder
	for _, b := range blocksOf(w.t, "first-week.md") {
		switch {
		case b.language != "sh":
		case b.heading == heading:
			script.WriteString(b.text)
		case w.played[b.heading]:
			for _, m := range regexp.MustCompile(`(?m)^[A-Z]+=.*$`).FindAllString(b.text, -1) {
				script.WriteString(m + "\n")
			}
		}
	}
	require.NotEmpty(w.t, script.String(), "no command below %q", heading)
	w.played[heading] = true
	w.t.Log(heading)
	return w.shell(script.String())
}

// shell runs commands, and gives what the user saw: they with their output.
func (w *week) shell(script string) (saw string) {
	w.t.Helper()
	ctx, cancel := deadline.Context(w.t.Context(), helmTime)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-x", "-c", script)
	shell.Dir, shell.Env, shell.WaitDelay = w.dir, append(w.env, "PS4=$ "), 10*time.Second
	began := time.Now()
	said, err := shell.CombinedOutput()
	w.t.Logf("%.1f s:\n%s", time.Since(began).Seconds(), said)
	require.NoError(w.t, err)
	return string(said)
}

// playedAll the commands of the document.
func (w *week) playedAll() {
	for _, b := range blocksOf(w.t, "first-week.md") {
		if b.language == "sh" {
			assert.True(w.t, w.played[b.heading], b.heading)
		}
	}
}

func (w *week) installs() {
	saw := w.play("Day 1: install and record")
	assert.Contains(w.t, saw, "Dry run of evictions: the agents mark no Node and evict no pod, and report what they would do.")
	assert.Regexp(w.t, `(?m)^testvm +ok +`, saw, "nodes")
	assert.NotContains(w.t, saw, "FAIL", "doctor")
	assert.Contains(w.t, saw, "Plimsoll  testvm", "top")
	assert.NotRegexp(w.t, `pod [0-9a-f-]{36}`, saw, "pods are called by their names")
	assert.Regexp(w.t, `recording: 1 segment, \d+ samples`, saw, "what is recorded")
	assert.Contains(w.t, saw, "the recording has their names, requests, QoS and priority")
}

// agent is the one pod of the DaemonSet.
func (w *week) agent() corev1.Pod {
	w.t.Helper()
	list, err := w.cluster.Client.CoreV1().Pods(chart.Namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent"})
	require.NoError(w.t, err)
	require.Len(w.t, list.Items, 1)
	return list.Items[0]
}

// restarts the agent by SIGKILL; the recording goes on.
func (w *week) restarts() {
	before := w.agent()
	w.run(`pkill -KILL -f '^/plimsoll agent'`)
	w.until(time.Minute, "the agent is started again, and ready", func() bool {
		is := w.agent()
		require.Equal(w.t, before.UID, is.UID)
		c := is.Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount == 1 && c[0].Ready
	})
	w.stage("killed, started again by the kubelet, and ready")
	saw := w.shell(`kubectl -n plimsoll-system exec pod/` + before.Name + ` -- /plimsoll replay /var/lib/plimsoll/recording`)
	assert.Len(w.t, regexp.MustCompile(`recording: \d+ segments?, \d+ samples`).FindAllString(saw, -1), 2, "of two starts")
	assert.Contains(w.t, saw, "not observed: the agent was restarted")
}

// scrapes with the configuration and the rules of docs/alerts.md. Debian's Prometheus is
// built without the discovery of pods: what it would find is found here.
func (w *week) scrapes() {
	config := map[string]any{"global": map[string]string{"scrape_interval": "5s", "evaluation_interval": "5s"}}
	for _, b := range blocksOf(w.t, "alerts.md") {
		require.NoError(w.t, yaml.Unmarshal([]byte(b.text), &config), b.text)
	}
	rules := config["rule_files"].([]any)
	for i, name := range rules {
		file, err := filepath.Abs(filepath.Join(chart.Dir, "prometheus", name.(string)))
		require.NoError(w.t, err)
		rules[i] = file
	}
	jobs := config["scrape_configs"].([]any)
	require.Len(w.t, jobs, 1)
	job := jobs[0].(map[string]any)
	delete(job, "kubernetes_sd_configs")
	job["proxy_url"], job["static_configs"] = w.way.server.URL, w.discovered()
	text, err := yaml.Marshal(config)
	require.NoError(w.t, err)
	*w.prometheus = prometheus.Start(w.whole, string(text))
	w.until(time.Minute, "agent and controllers are scraped", func() bool {
		v, err := prometheus.Value(*w.prometheus, `count(plimsoll_build_info{node="testvm"} and on (instance) up == 1)`)
		return err == nil && v == "3"
	})
	w.stage("scraped: one agent, two controllers")
}

// discovered are the targets among Plimsoll's pods.
func (w *week) discovered() (list []any) {
	w.t.Helper()
	pods, err := w.cluster.Client.CoreV1().Pods(chart.Namespace).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				list = append(list, map[string]any{"targets": []string{fmt.Sprintf("%s:%d", p.Status.PodIP, port.ContainerPort)}, "labels": map[string]string{
					"__meta_kubernetes_namespace": p.Namespace, "__meta_kubernetes_pod_name": p.Name, "__meta_kubernetes_pod_node_name": p.Spec.NodeName,
					"__meta_kubernetes_pod_container_name": c.Name, "__meta_kubernetes_pod_container_port_name": port.Name,
				}})
			}
		}
	}
	return list
}

// slowDisk has the disk with the pages take so many requests a second; 0: as it can. A
// kubelet that is starved as well would end the pod that presses only after many minutes.
func (w *week) slowDisk(iops int) {
	w.t.Helper()
	_, err := w.Monitor(w.t.Context(), fmt.Sprintf("block_set_io_throttle vd1 0 0 0 %d 0 0", iops))
	require.NoError(w.t, err)
}

// presses the memory of the node by a pod of a Deployment.
func (w *week) presses(name string) corev1.Pod {
	w.t.Helper()
	w.slowDisk(1000)
	w.deploy(name, presser("-available", "50"))
	pod := w.running(name)
	w.stage("a pod presses")
	return pod
}

// alerts: the rules fire by the agent's own metrics.
func (w *week) alerts() {
	w.until(15*time.Minute, "the rules report only no more", func() bool {
		return time.Since(w.agent().Status.StartTime.Time) > evict.DefaultConfig().ReportOnly
	})
	w.stage("the first ten minutes of the rules are over")
	presser := w.presses("bulk")
	w.until(5*time.Minute, "PlimsollWouldEvict fires", func() bool {
		return prometheus.HasRow(*w.prometheus, `ALERTS{alertname="PlimsollWouldEvict", alertstate="firing"}`, map[string]string{"node": nodeName, "plugin": "memory-stall"}) == nil
	})
	w.stage("PlimsollWouldEvict fires")
	firing, err := prometheus.Rows(*w.prometheus, "ALERTS")
	require.NoError(w.t, err)
	for _, row := range firing {
		w.t.Log(row)
	}
	w.slowDisk(0)
	w.undeploy("bulk")
	w.ended(presser)
	// In a dry run no taint keeps a successor away.
	w.until(5*time.Minute, "no pod presses, and memory is enough again", func() bool {
		v, err := prometheus.Value(*w.prometheus, `plimsoll_threshold_met{plugin="memory-stall"}`)
		return len(w.pods("bulk")) == 0 && err == nil && v == "0"
	})
	w.stage("the pod has ended by itself, not evicted, and the pressure is over")
}

func (w *week) looks() {
	saw := w.play("Days 2 to 6: look")
	assert.Contains(w.t, saw, "PressureEvictionDryRun")
	assert.Regexp(w.t, `default/bulk-\S+`, saw)
	assert.Contains(w.t, saw, "memory-stall")
	assert.Empty(w.t, slices.DeleteFunc(w.marked(), func(mark string) bool { return strings.HasPrefix(mark, "note ") }), "a dry run")
}

func (w *week) advises() {
	saw := w.play("Day 7: ask for advice")
	assert.Contains(w.t, saw, "memoryStall.hard.stallFull: not enough data: ")
	assert.Contains(w.t, saw, "judged with the configuration on standard input")
	advised, err := os.ReadFile(filepath.Join(w.dir, "advised.yaml"))
	require.NoError(w.t, err)
	assert.Contains(w.t, string(advised), "kind: AgentConfiguration")
}

// acts: with the switches of the document the agent follows the file, and the pod that
// presses is evicted, and no other.
func (w *week) acts() {
	agent, shop := w.agent(), w.running("shop")
	w.play("Then: let memory act")
	w.until(2*time.Minute, "the agent is in no dry run any more", func() bool {
		v, err := prometheus.Value(*w.prometheus, `plimsoll_eviction_dry_run`)
		return err == nil && v == "0"
	})
	w.stage("the agent acts")
	presser := w.presses("import")
	w.said(presser.UID, "PressureEviction", 10*time.Minute)
	w.ended(presser)
	w.stage("evicted, and ended")
	saw := w.play("See what was done")
	assert.Regexp(w.t, `: evicted \(decision \w+\)`, saw, "the Event")
	assert.Regexp(w.t, `decision +default/`+presser.Name+": working set", saw, "the decision")
	assert.Contains(w.t, saw, "True: ", "the condition")
	assert.Equal(w.t, agent.UID, w.agent().UID, "no pod was made anew")
	assert.Equal(w.t, shop.UID, w.running("shop").UID, "the other pod is the same")
	next := w.pods("import")
	require.Len(w.t, next, 1)
	assert.Equal(w.t, corev1.PodPending, next[0].Status.Phase, "the taint keeps its successor away")
}
