package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// ruleFiles are what Prometheus loads.
func ruleFiles() []string { return []string{"prometheus/alerts.yaml", "prometheus/recording.yaml"} }

// rule is an alert or a recording.
type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

func rulesIn(t *testing.T, file string) (all []rule) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var parsed struct {
		Groups []struct{ Rules []rule }
	}
	require.NoError(t, yaml.Unmarshal(text, &parsed), file)
	for _, g := range parsed.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// promtool runs Prometheus' own tool in prometheus/.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (make deps)")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = "prometheus"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

func TestAlertRulesValid(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", "alerts.yaml", "recording.yaml")
}

// Each on what it is for, and none on a healthy busy node: tests.yaml says so.
func TestAlertRules(t *testing.T) {
	promtool(t, "test", "rules", "tests.yaml", "tests_days.yaml")
}

func TestAlertsEachFiresInTest(t *testing.T) {
	var tests strings.Builder
	for _, file := range []string{"prometheus/tests.yaml", "prometheus/tests_days.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tests.Write(text)
	}
	fires := regexp.MustCompile(`alertname="(\w+)", alertstate="firing"|alertname: (\w+)\n.*\n +exp_alerts:\n`).FindAllStringSubmatch(tests.String(), -1)
	seen := map[string]bool{}
	for _, m := range fires {
		seen[m[1]+m[2]] = true
	}
	for _, r := range rulesIn(t, ruleFiles()[0]) {
		assert.True(t, seen[r.Alert], r.Alert)
	}
}

// What it means, what to look at, what to do: at the place that the alert names.
func TestAlertsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/alerts.md")
	require.NoError(t, err)
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	for _, r := range rulesIn(t, ruleFiles()[0]) {
		assert.Contains(t, []string{"info", "warning", "critical"}, r.Labels["severity"], r.Alert)
		assert.Len(t, r.Annotations, 3, r.Alert)
		for _, annotation := range []string{"summary", "description"} {
			assert.Greater(t, len(r.Annotations[annotation]), 10, "%s of %s", annotation, r.Alert)
		}
		assert.Equal(t, "https://github.com/plimsoll-dev/plimsoll/blob/main/docs/alerts.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		for _, part := range []string{"**What it means.**", "**What to look at.**", "**What to do.**"} {
			assert.Contains(t, sections[r.Alert], part, r.Alert)
		}
		delete(sections, r.Alert)
	}
	assert.Empty(t, sections, "of alerts that are not there")
}

// dashboard is the part of it that asks something.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

// expressions of the rules and the dashboard, by what they are of.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range ruleFiles() {
		for _, r := range rulesIn(t, file) {
			all[r.Alert+r.Record] = r.Expr
		}
	}
	text, err := os.ReadFile("grafana/plimsoll.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title] += target.Expr + "\n"
		}
	}
	return all
}

// documentedLabels of each metric of the document, which is made from the
// exposition: what is not in it is not exposed.
func documentedLabels(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	labels := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		labels[row[1]] += row[3]
		if row[2] == "histogram" {
			labels[row[1]+"_bucket"] = row[3] + "`le`"
		}
	}
	return labels
}

func TestRulesAndDashboardNamesExist(t *testing.T) {
	labels := documentedLabels(t)
	for _, r := range rulesIn(t, ruleFiles()[1]) {
		labels[r.Record] = "`condition` `resource` `plugin` `result` `velero` `kind`"
	}
	named := regexp.MustCompile(`([a-z0-9_:]*plimsoll_[a-z0-9_:]+)(?:\{([^}]*)\})?`)
	for of, expr := range expressions(t) {
		for _, m := range named.FindAllStringSubmatch(expr, -1) {
			require.Contains(t, labels, m[1], of)
			for _, l := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains([]string{"instance", "job", "cluster", "node"}, l[1]) { // of the scrape
					assert.Contains(t, labels[m[1]], "`"+l[1]+"`", "%s: %s", of, m[0])
				}
			}
		}
	}
}

// Where no agent answers, the row that a person looks at first gives no all-clear.
func TestDashboardWithoutAgents(t *testing.T) {
	text, err := os.ReadFile("grafana/plimsoll.json")
	require.NoError(t, err)
	var d struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &d))
	series := func(of, values string) map[string]string { return map[string]string{"series": of, "values": values} }
	var tests []map[string]any
	for agents, sampled := range []string{"_x9", "1x9"} {
		expressions := []map[string]any{}
		for i := 1; d.Panels[i].Type == "stat"; i++ {
			samples := []map[string]any{}
			switch {
			case d.Panels[i].Title == "Agents that answer":
				samples = append(samples, map[string]any{"labels": "{}", "value": agents})
			case agents > 0: // and nothing is wrong there
				samples = append(samples, map[string]any{"labels": "{}", "value": 0})
			}
			expr := strings.NewReplacer("$cluster", ".*", "$node", ".*").Replace(d.Panels[i].Targets[0].Expr)
			expressions = append(expressions, map[string]any{"expr": expr, "eval_time": "5m", "exp_samples": samples})
		}
		require.Len(t, expressions, 7)
		tests = append(tests, map[string]any{"interval": "1m", "promql_expr_test": expressions, "input_series": []map[string]string{
			series(`up{job="controller"}`, "1x9"), series(`plimsoll_build_info{job="controller"}`, "1x9"), series(`plimsoll_leader{job="controller"}`, "1x9"),
			series(`up{job="agent"}`, sampled), series(`plimsoll_build_info{job="agent"}`, sampled), series(`plimsoll_resource_judged{job="agent"}`, sampled),
			series(`plimsoll_threshold_met{job="agent"}`, strings.Replace(sampled, "1", "0", 1)),
		}})
	}
	text, err = yaml.Marshal(map[string]any{"tests": tests})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tests.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "test", "rules", file)
}

// A culprit is named on its own node alone, also where the scrape sets no node, and by no traffic
// of which too little is known whose it is; a mount that hangs has no old value.
func TestDashboardShowsWhatIsKnown(t *testing.T) {
	text, err := os.ReadFile("grafana/plimsoll.json")
	require.NoError(t, err)
	var d struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &d))
	queries := map[string]string{}
	for _, p := range d.Panels {
		if len(p.Targets) > 0 {
			queries[p.Title] = strings.NewReplacer("$cluster", ".*", "$node", ".*").Replace(p.Targets[0].Expr)
		}
	}
	series := func(of, labels, value string) map[string]string {
		return map[string]string{"series": "plimsoll_" + of + `{job="agent", ` + labels + "}", "values": value + "x9"}
	}
	culprit := func(instance, resource, device, pod string) string {
		return fmt.Sprintf(`instance=%q, resource=%q, device=%q, workload_pod=%q`, instance, resource, device, pod)
	}
	sample := func(labels string, value float64) map[string]any {
		return map[string]any{"labels": "{" + labels + "}", "value": value}
	}
	tests := []map[string]any{{
		"interval": "1m",
		"input_series": []map[string]string{
			series("contention_coverage_ratio", `instance="a", resource="disk", device="sda"`, "0.9"),
			series("contention_coverage_ratio", `instance="b", resource="disk", device="sda"`, "0.3"),
			series("contention_culprit_share_ratio", culprit("a", "disk", "sda", "one"), "0.8"),
			series("contention_culprit_share_ratio", culprit("b", "disk", "sda", "two"), "0.2"),
			series("contention_culprit_share_ratio", culprit("c", "disk", "sda", "three"), "0.5"),
			series("contention_culprit_share_ratio", culprit("c", "network", "eth0", "three"), "0.4"),
			series("filesystem_up", `instance="a", mountpoint="/"`, "1"), series("filesystem_up", `instance="a", mountpoint="/nfs"`, "0"),
			series("filesystem_avail_bytes", `instance="a", mountpoint="/"`, "5"), series("filesystem_avail_bytes", `instance="a", mountpoint="/nfs"`, "5"),
			series("filesystem_size_bytes", `instance="a", mountpoint="/"`, "10"), series("filesystem_size_bytes", `instance="a", mountpoint="/nfs"`, "10"),
		},
		"promql_expr_test": []map[string]any{
			{"expr": queries["Culprits"], "eval_time": "5m", "exp_samples": []map[string]any{
				sample(culprit("a", "disk", "sda", "one"), 0.8), sample(culprit("c", "disk", "sda", "three"), 0.5), sample(culprit("c", "network", "eth0", "three"), 0.4),
			}},
			{"expr": queries["Filesystems: available space"], "eval_time": "5m", "exp_samples": []map[string]any{sample(`job="agent", instance="a", mountpoint="/"`, 0.5)}},
		},
	}}
	text, err = yaml.Marshal(map[string]any{"tests": tests})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tests.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "test", "rules", file)
}

// panel is one of the dashboard.
type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults  struct{ Mappings []any }
		Overrides []struct{ Properties []struct{ ID string } }
	}
	Targets []struct{ Expr, Format string }
}

// worded are values that are shown as words.
func (p *panel) worded() bool {
	return len(p.FieldConfig.Defaults.Mappings) > 0 || len(p.FieldConfig.Overrides) > 0 && len(p.FieldConfig.Overrides[0].Properties) > 1
}

// A person asks in the order of the rows: each is a question, and has what answers
// it at a glance.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("grafana/plimsoll.json")
	require.NoError(t, err)
	var d struct {
		Templating struct{ List []struct{ Name string } }
		Panels     []panel
	}
	require.NoError(t, json.Unmarshal(text, &d))
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	assert.Equal(t, []string{"datasource", "cluster", "node"}, variables)
	types, ids, levels := map[string]int{}, map[int]bool{}, 0
	for i := range d.Panels {
		p := &d.Panels[i]
		types[p.Type]++
		assert.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		assert.Equal(t, p.Type == "row", strings.HasSuffix(p.Title, "?"), p.Title)
		assert.True(t, p.Description != "" || p.Type != "stat" && p.Type != "table", p.Title)
		for _, target := range p.Targets {
			assert.Contains(t, target.Expr, `cluster=~"$cluster"`, p.Title)
			assert.Equal(t, p.Type == "table", target.Format == "table", p.Title)
			if strings.Contains(target.Expr, "plimsoll_threshold_met") && p.Type != "stat" {
				levels++
				assert.True(t, p.worded(), "%s: levels have words", p.Title)
			}
		}
	}
	assert.Equal(t, 2, levels)
	for kind, least := range map[string]int{"row": 6, "stat": 8, "table": 4, "timeseries": 15} {
		assert.GreaterOrEqual(t, types[kind], least, kind)
	}
	lieApart(t, d.Panels)
}

func lieApart(t *testing.T, panels []panel) {
	t.Helper()
	cells := map[[2]int]string{}
	for _, p := range panels {
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Less(t, at[0], 24, p.Title)
				assert.Empty(t, cells[at], "%s lies on %s", p.Title, cells[at])
				cells[at] = p.Title
			}
		}
	}
}
