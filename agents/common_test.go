package agents

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

func at(level, resource, plugin string) lease.Request {
	r := request("p1")
	r.Level, r.Resource, r.Plugin = level, resource, plugin
	return r
}

func TestCommonCausePerResource(t *testing.T) {
	const all = 100
	report := func(resource, level string) lease.NodeReport {
		return lease.NodeReport{Pressure: map[string]string{resource: level}}
	}
	says := func(plugin, level string) lease.NodeReport {
		return lease.NodeReport{Plugins: map[string]string{plugin: level}}
	}
	for what, row := range map[string]struct {
		nodes   int
		report  lease.NodeReport
		request lease.Request
		why     string
	}{
		"a data disk is full everywhere, at soft": {all, report("filesystem", "soft"), at("hard", "memory", "memory-stall"), ""},
		"and at hard": {all, report("filesystem", "hard"), at("hard", "memory", "memory-stall"), ""},
		"memory at soft everywhere is no cause of hard": {all, report("memory", "soft"), at("hard", "memory", "memory-stall"), ""},
		"memory at hard everywhere is":                  {all, report("memory", "hard"), at("hard", "memory", "memory-stall"), "100 of 100 nodes have hard pressure on memory"},
		"of 30 it is not":                               {30, report("memory", "hard"), at("hard", "memory", "memory-stall"), ""},
		"a slow disk at soft holds up its own":          {all, report("disk", "soft"), at("soft", "disk", "disk-contention"), "100 of 100 nodes have pressure on disk"},
		"and where it is hard, at soft too":             {all, report("disk", "hard"), at("soft", "disk", "disk-contention"), "100 of 100 nodes have pressure on disk"},
		"a slow disk does not hold up memory at soft":   {all, report("disk", "soft"), at("soft", "memory", "memory-stall"), ""},
		"who names no resource waits for each":          {all, report("disk", "hard"), at("hard", "", "files"), "hard pressure on disk"},
		"who names no resource, for those at its level": {all, report("disk", "soft"), at("hard", "", "files"), ""},
		"who says nothing waits for all":                {all, report("disk", "soft"), at("", "", "files"), "pressure on disk"},
		"a plugin that is at hard everywhere":           {all, says("files", "hard"), at("hard", "", "files"), "hard pressure reported by plugin files"},
		"a plugin that is at soft everywhere":           {all, says("files", "soft"), at("soft", "", "files"), "pressure reported by plugin files"},
		"holds up what it asks for at soft alone":       {all, says("files", "soft"), at("hard", "", "files"), ""},
		"and no other plugin":                           {all, says("files", "hard"), at("hard", "memory", "memory-stall"), ""},
	} {
		t.Run(what, func(t *testing.T) {
			j := &Judgement{}
			for i := range all {
				a := made(fmt.Sprint("n", i), 0, untainted)
				if i < row.nodes {
					a.Carried.Report = row.report
				}
				j.Agents = append(j.Agents, Judged{Agent: &a, State: Alive})
			}
			before := PastEviction{UID: "before", Node: "m", Zone: "a", Time: noon, PastBrake: BrakeCommon}
			g := NewEvaluation(noon, DefaultSettings(), j, History{ServerTime: noon, Own: []PastEviction{before}})
			g.Pods = 1000
			code, why := refusal(g.Refuse(PendingRequest{&j.Agents[0], row.request}))
			assert.Contains(t, why, row.why)
			assert.Equal(t, row.why != "", code == CodeCommon, why)
		})
	}
}

func TestCommonCauseNamesLevel(t *testing.T) {
	g := calm(pressed("disk", 40), pressed("memory", 40), says("files", 40))
	g.Hard.Resources["memory"] = 40
	assert.Equal(t, []string{"disk at soft", "memory"}, g.Common())
	assert.Equal(t, []string{"files at soft"}, g.CommonPlugins())
}

// marked by so many taints of ours, as the record says; some are there.
func withTaints(there []corev1.TaintEffect, recorded string) func(*Agent) {
	return func(a *Agent) {
		a.Node.Annotations = map[string]string{evict.TaintsAnnotation: recorded}
		a.Node.Spec.Taints = nil
		for _, effect := range there {
			a.Node.Spec.Taints = append(a.Node.Spec.Taints, corev1.Taint{Key: "plimsoll.dev/FilesystemPressure", Effect: effect})
		}
	}
}

// A zone of 19 nodes of which a data disk is full: one is short of memory.
func TestZoneCountsTaintsThatRepelPods(t *testing.T) {
	record := func(effect corev1.TaintEffect) string {
		return fmt.Sprintf(`[{"key":"plimsoll.dev/FilesystemPressure","effect":%q,"since":"2026-03-01T11:00:00Z"}]`, effect)
	}
	const prefer, no, noExecute = corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	for what, row := range map[string]struct {
		taints func(*Agent)
		code   Code
	}{
		"pods are kept away where there is room elsewhere": {withTaints([]corev1.TaintEffect{prefer}, record(prefer)), ""},
		"pods are kept away":              {withTaints([]corev1.TaintEffect{no}, record(no)), CodeZone},
		"pods are ended, too":             {withTaints([]corev1.TaintEffect{noExecute}, record(noExecute)), CodeZone},
		"they were, and it was taken off": {withTaints(nil, record(no)), ""},
		"nothing is on record":            {withTaints([]corev1.TaintEffect{no}, ""), ""},
		"another's keeps them away":       {func(a *Agent) { a.Node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: no}} }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			j := &Judgement{}
			for i := range 19 {
				a := made(fmt.Sprint("n", i), 0, row.taints)
				var err error
				a.Node, err = trimNode(a.Node)
				require.NoError(t, err)
				a.Carried.Report.Pressure = map[string]string{"filesystem": "soft"}
				j.Agents = append(j.Agents, Judged{Agent: &a, State: Alive})
			}
			before := PastEviction{UID: "before", Node: "m", Zone: "a", Time: noon, PastBrake: BrakeZone}
			g := NewEvaluation(noon, DefaultSettings(), j, History{ServerTime: noon, Own: []PastEviction{before}})
			g.Pods = 1000
			code, why := refusal(g.Refuse(PendingRequest{&j.Agents[0], at("hard", "memory", "memory-stall")}))
			assert.Equal(t, row.code, code, why)
		})
	}
}
