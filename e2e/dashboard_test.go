package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/prometheus"
	"github.com/plimsoll-dev/plimsoll/names"
)

// What may have no series where nothing is wrong: the beginning of what is
// asked for.
func quiet() []string {
	return []string{
		"topk by (cluster, node, instance, resource, device) (3, max by (", // no workload waits for another
		"max by (cluster, node, instance, plugin, scope) (plimsoll_threshold_met",
		"max by (cluster, node, instance, resource) (plimsoll_resource_judged",                   // all was judged
		"max by (cluster, node, instance) (plimsoll_vgdp_budget",                                 // Velero's own configuration alone limits the loads
		"min by (cluster, node, instance, resource, device) (plimsoll_contention_coverage_ratio", // nothing asked a disk for anything in the last seconds
		"plimsoll_disk_await_seconds",
	}
}

// Each query of the dashboard gets data, and each rule is evaluated, by a real
// Prometheus over a real agent, by TLS and password, and a real controller, by
// token, and no alert fires or stays pending.
func TestDashboardAndRulesOnHealthyCluster(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (make deps)", tool)
		}
	}
	c := cluster.New(t, cluster.Options{Without: []string{cluster.Scheduler}})
	token, _ := scrapers(t, c)
	f := newBackupWorld(t, c, "limit: 1", "shop")
	f.velero.Work = lasts(nil)
	f.runVelero()
	f.schedule("shop", "0 * * * *", map[string]any{names.RPO: "3h"})
	for hours := range 24 {
		f.ended("shop", time.Now().Add(-time.Duration(hours+1)*time.Hour), time.Minute)
	}
	h := newVeleroWorld(t, c, 1, `{"loadConcurrency":{"globalConfig":4,"prepareQueueLength":4}}`, "")
	h.load("DataUpload", "one", "b", nil)
	web, authority := webConfig(t)
	a := watchedAgent(t, c, web)
	write(t, f.config, fmt.Sprintf("apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: %s}, {namespace: %s}]\n"+
		"web: {tokenReview: true}\nelection: {duration: 5s}\nbackups: {enabled: true, resync: 1s, limit: 1, deadlines: {enabled: true}}\nvgdp: {enabled: true, leaseDuration: 5s}\n", f.namespace, h.namespace))
	controller := f.controller().start()
	f.create("first", "shop")
	f.become(map[string]string{"first": "InProgress"})
	f.create("second", "shop")
	f.become(map[string]string{"second": "Queued 1"})

	rules, err := filepath.Abs("../deploy/prometheus")
	require.NoError(t, err)
	base := prometheus.Start(t, fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s/alerts.yaml, %[1]s/recording.yaml]
scrape_configs:
  - {job_name: agents, scheme: https, tls_config: {ca_file: %q}, basic_auth: {username: prometheus, password: %q}, static_configs: [{targets: [%q]}]}
  - {job_name: controllers, authorization: {credentials: %q}, static_configs: [{targets: [%q]}]}
`, rules, authority, password, strings.TrimPrefix(a.url, "https://"), token, strings.TrimPrefix(controller.url, "http://")))
	for title, queries := range dashboard(t) {
		for _, query := range queries {
			eventually(t, title+": "+query, func() error { return hasData(base, query) })
		}
	}
	eventually(t, "each rule is evaluated", func() error { return rulesAreGood(base) })
	eventually(t, "no alert is pending", func() error {
		_, alerts, err := get(http.DefaultClient, base+"/api/v1/alerts")
		if err == nil && strings.Contains(alerts, "alertname") {
			err = errors.New(alerts)
		}
		return err
	})
	v, err := prometheus.Value(base, `count(count_over_time(ALERTS{alertstate="firing"}[1h])) or vector(0)`)
	require.NoError(t, err)
	assert.Equal(t, "0", v, "none has fired")
}

// watchedAgent is an agent that acts, on a node of the cluster, behind a web
// configuration.
func watchedAgent(t *testing.T, c *cluster.Cluster, web string) *agent {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), deploy.RBACEvictDirect, deploy.Heartbeats, deploy.Identity))
	node := "watched"
	c.Node(t, node)
	kubeconfig, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(t, err)
	a := prepareAgent(t, "--kubeconfig", kubeconfig, "--node", node, "--state.dir", filepath.Join(t.TempDir(), "state"), "--web.config.file", web,
		"--config", configFile(t, "lease: {interval: 1s}\neviction: {dryRun: false}\n")).start()
	eventually(t, "the agent is ready", func() error {
		status, body, err := a.local(http.MethodGet, "/-/ready")
		if err == nil && status != http.StatusOK {
			err = errors.New(body)
		}
		return err
	})
	return a
}

// dashboard has the queries of each panel, as Grafana asks them.
func dashboard(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../deploy/grafana/plimsoll.json")
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	decode(t, string(text), &d)
	all := map[string][]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], strings.NewReplacer("$__rate_interval", "10s", "$cluster", ".*", "$node", ".*").Replace(target.Expr))
		}
	}
	require.Greater(t, len(all), 10)
	return all
}

// hasData tells what a query lacks.
func hasData(base, query string) error {
	_, err := prometheus.Value(base, query)
	if err == nil {
		return nil
	}
	for _, may := range quiet() {
		if strings.HasPrefix(query, may) && errors.Is(err, prometheus.ErrNoResult) {
			return nil
		}
	}
	return err
}

// rulesAreGood tells what is wrong with some rule.
func rulesAreGood(base string) error {
	_, body, err := get(http.DefaultClient, base+"/api/v1/rules")
	if err != nil {
		return err
	}
	var r struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return err
	}
	n := 0
	for _, g := range r.Data.Groups {
		for _, rule := range g.Rules {
			if n++; rule.Health != "ok" {
				return fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
		}
	}
	if n < 10 {
		return fmt.Errorf("%d rules", n)
	}
	return nil
}
