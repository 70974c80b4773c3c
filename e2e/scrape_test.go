package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/prometheus"
)

// scrapedConfig is of an agent that judges this machine's disk and the memory of
// pods, in a dry run. The thresholds are for any disk.
const scrapedConfig = `
window: 5s
workloads: {roots: [%q]}
kubernetes: {kubeconfig: %q, node: %q}
state: {dir: %q}
lease: {interval: 1s, duration: 4s}
eviction: {dryRun: true, round: 1s, cooldown: 2s, reportOnly: 0s, limits: {perMinute: 60, perOwnerHour: 3600}}
plugins:
  warmUp: 0s
  diskContention: {await: 200us, awaitRotational: 200us, for: 3s, clearFor: 3s, coverage: 0.2}
  rssOveruse: {enabled: true, for: 3s, clearFor: 3s}
  networkContention: {enabled: false}
  filesystem: {enabled: false}
`

// scraped is a node on which one pod waits for another's disk traffic and a third
// holds more memory than it requests, and one whose agent judges nothing.
type scraped struct {
	*world
	idle  string            // the node whose agent judges nothing
	hosts map[string]string // addresses of the agents by their pods
	nodes map[string]string // nodes of the agents by their pods
}

// A real Prometheus scrapes as the Prometheus Operator tells it for the chart's
// monitors (e2e/chart TestTheOperator): its own labels namespace and pod are the
// agent's. Each panel and alert names the pod that presses and its node.
func TestScrape(t *testing.T) {
	needsRoot(t)
	prometheus.Skip(t)
	file := bigFile(t, 256<<20)
	disk := diskOf(t, file)
	t.Logf("the disk of %s is %s", file, disk)
	s := &scraped{world: startWorld(t), hosts: map[string]string{}, nodes: map[string]string{}}
	s.begin()
	bases := map[string]string{"PodMonitor": s.prometheus("podmonitor"), "ServiceMonitor": s.prometheus("servicemonitor")}
	for name, base := range bases {
		eventually(t, name+": both agents are scraped", func() error { return rowsAre(base, `count(up == 1) == 2`, 1) })
	}
	s.press(file, disk)
	for name, base := range bases {
		t.Run(name, func(t *testing.T) { s.shown(t, base) })
	}
}

// begin both agents, each in its pod.
func (s *scraped) begin() {
	s.t.Helper()
	s.idle = s.node + "-idle"
	s.c.Node(s.t, s.idle)
	kubeconfig, err := s.c.ServiceAccount(s.t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: s.node})
	require.NoError(s.t, err)
	root := fmt.Sprintf("/plimsoll-e2e-%d-%s", os.Getpid(), s.node)
	s.agent = prepareAgent(s.t, "--config", configFile(s.t, fmt.Sprintf(scrapedConfig, root, kubeconfig, s.node, s.state)), "--web.listen-address", s.inPod("plimsoll-agent-"+s.node, s.node)).start()
	prepare(s.t, "--config", configFile(s.t, "plugins: {memoryStall: {enabled: false}, cpuContention: {enabled: false}, diskContention: {enabled: false}, networkContention: {enabled: false}, filesystem: {enabled: false}}\n"),
		"--web.listen-address", s.inPod("plimsoll-agent-"+s.idle, s.idle)).start()
}

// inPod is where the agent of that pod listens.
func (s *scraped) inPod(name, node string) string {
	s.hosts[name], s.nodes[name] = fmt.Sprintf("127.%d.%d.%d:9773", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)), node
	return s.hosts[name]
}

// discovered are the targets as Prometheus' discovery finds them, by pods and by
// the endpoints of the chart's Service. Debian's Prometheus is built without it.
func (s *scraped) discovered() (list []any) {
	for _, pod := range slices.Sorted(maps.Keys(s.hosts)) {
		list = append(list, map[string]any{"targets": []string{s.hosts[pod]}, "labels": map[string]string{
			"__meta_kubernetes_namespace":                                   "plimsoll-system",
			"__meta_kubernetes_pod_name":                                    pod,
			"__meta_kubernetes_pod_container_name":                          "agent",
			"__meta_kubernetes_pod_container_port_name":                     "metrics",
			"__meta_kubernetes_pod_phase":                                   "Running",
			"__meta_kubernetes_pod_node_name":                               s.nodes[pod],
			"__meta_kubernetes_pod_label_app_kubernetes_io_name":            "plimsoll",
			"__meta_kubernetes_pod_labelpresent_app_kubernetes_io_name":     "true",
			"__meta_kubernetes_service_name":                                "plimsoll",
			"__meta_kubernetes_service_label_app_kubernetes_io_name":        "plimsoll",
			"__meta_kubernetes_service_labelpresent_app_kubernetes_io_name": "true",
			"__meta_kubernetes_endpoint_port_name":                          "metrics",
			"__meta_kubernetes_endpoint_address_target_kind":                "Pod",
			"__meta_kubernetes_endpoint_address_target_name":                pod,
		}})
	}
	return list
}

// prometheus scrapes once a second by the configuration of a monitor, and has the
// rules with half a second for each minute.
func (s *scraped) prometheus(monitor string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "prometheus-"+monitor+".yml"))
	require.NoError(s.t, err)
	var config map[string]any
	// What the operator's reloader puts in.
	require.NoError(s.t, yaml.Unmarshal([]byte(strings.NewReplacer("$(SHARD)", "0", "$(POD_NAME)", "prometheus-0").Replace(string(text))), &config))
	global := config["global"].(map[string]any)
	global["scrape_interval"], global["evaluation_interval"] = "1s", "1s"
	jobs := config["scrape_configs"].([]any)
	require.Len(s.t, jobs, 1)
	job := jobs[0].(map[string]any)
	job["scrape_interval"] = "1s"
	delete(job, "kubernetes_sd_configs")
	job["static_configs"] = s.discovered()
	dir := s.t.TempDir()
	var rules []string
	for _, name := range []string{"alerts", "recording"} {
		text, err := os.ReadFile("../deploy/prometheus/" + name + ".yaml")
		require.NoError(s.t, err)
		rules = append(rules, write(s.t, filepath.Join(dir, name+".yaml"), halfASecondAMinute(s.t, string(text))))
	}
	config["rule_files"] = rules
	made, err := yaml.Marshal(config)
	require.NoError(s.t, err)
	return prometheus.Start(s.t, string(made))
}

// halfASecondAMinute makes half a second of each minute in rules: in "for: 5m", "[1h]" and "offset 1h".
func halfASecondAMinute(t *testing.T, rules string) string {
	t.Helper()
	minutes := map[string]int{"m": 1, "h": 60, "d": 24 * 60}
	n := 0
	made := regexp.MustCompile(`(for: |\[|offset )(\d+)([mhd])`).ReplaceAllStringFunc(rules, func(found string) string {
		n++
		m := regexp.MustCompile(`(\D+)(\d+)(\w)`).FindStringSubmatch(found)
		count, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		return m[1] + strconv.Itoa(max(2000, count*minutes[m[3]]*500)) + "ms" // a rate takes two samples
	})
	require.Greater(t, n, 3)
	return made
}

// press the disk that a file is on, and the memory, each by a pod.
func (s *scraped) press(file, disk string) {
	s.t.Helper()
	s.deploy("presser", 0, func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0].Command = []string{loadBinary, "read", file, "1048576", "4", "0"}
	})
	s.deploy("shop", 0, func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0].Command = []string{loadBinary, "read", file, "8192", "1", "1000"}
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	})
	s.deploy("greedy", 64, func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	})
	presser := s.running("presser")
	// v1 counts the IO of a cgroup only where a limit is set.
	if blkio := blkioV1 + s.kubelet.Cgroup(&presser); exists(blkio) {
		countIO(s.t, blkio, disk)
	}
}

// shown is what a person sees.
func (s *scraped) shown(t *testing.T, base string) {
	presser, shop := s.running("presser").Name, s.running("shop").Name
	panels := dashboard(t)
	for title, want := range map[string]map[string]string{
		"Culprits":                  {"node": s.node, "workload_namespace": s.namespace, "workload_pod": presser},
		"Sufferers":                 {"node": s.node, "workload_namespace": s.namespace, "workload_pod": shop},
		"Rules at a level":          {"node": s.node, "plugin": "disk-contention"},
		"Agents and their versions": {"node": s.idle},
		"Not judged":                {"node": s.idle, "resource": "memory"},
	} {
		within(t, 2*patience, title, func() error { return prometheus.HasRow(base, panels[title][0], want) })
	}
	for title, want := range map[string]string{
		"Nodes with a rule at hard": "1", "Agents that judge nothing": "1", "Agents that do not answer": "0", "Marked nodes": "0", "Agents in a dry run": "1",
	} {
		eventually(t, title, func() error {
			v, err := prometheus.Value(base, panels[title][0])
			if err == nil && v != want {
				err = fmt.Errorf("want %s, got %s", want, v)
			}
			return err
		})
	}
	for alert, want := range map[string]map[string]string{
		"PlimsollPressureSoft":  {"node": s.node, "plugin": "disk-contention"},
		"PlimsollPressureHard":  {"node": s.node, "plugin": "rss-overuse"},
		"PlimsollWouldEvict":    {"node": s.node, "plugin": "rss-overuse"},
		"PlimsollJudgesNothing": {"node": s.idle, "pod": "plimsoll-agent-" + s.idle},
		"PlimsollNotJudged":     {"resource": "memory"},
	} {
		within(t, 2*patience, alert+" fires", func() error {
			// A dry run would evict a pod once, and its alert ends.
			return prometheus.HasRow(base, fmt.Sprintf(`last_over_time(ALERTS{alertname=%q, alertstate="firing"}[1h])`, alert), want)
		})
	}
	s.everyRowHasItsNode(t, base, panels)
}

// everyRowHasItsNode, in each panel, and none names an agent's pod as a workload.
func (s *scraped) everyRowHasItsNode(t *testing.T, base string, panels map[string][]string) {
	t.Helper()
	n := 0
	for title, queries := range panels {
		for _, query := range queries {
			list, err := prometheus.Rows(base, query)
			require.NoError(t, err, "%s: %s", title, query)
			for _, row := range list {
				if node, has := row["node"]; has {
					n++
					assert.Contains(t, []string{s.node, s.idle}, node, title)
				}
				assert.NotContains(t, row["workload_pod"], "plimsoll-agent", title)
				assert.NotEqual(t, "plimsoll-system", row["workload_namespace"], title)
			}
		}
	}
	assert.Greater(t, n, 20)
	list, err := prometheus.Rows(base, `{__name__=~"plimsoll_.+", node=""}`)
	require.NoError(t, err)
	assert.Empty(t, list, "a series without its node")
}

func rowsAre(base, query string, want int) error {
	list, err := prometheus.Rows(base, query)
	if err == nil && len(list) != want {
		err = fmt.Errorf("%d rows: %v", len(list), list)
	}
	return err
}
