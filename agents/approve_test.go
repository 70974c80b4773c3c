package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// pod of a Deployment, on node n, as a scheduler bound it.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-5c7d-x", UID: "p1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5c7d", UID: "r", Controller: new(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:name":{}}}}}`)}},
		},
		Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func request(uid string) lease.Request {
	return lease.Request{UID: uid, Namespace: "shop", Name: "web-5c7d-x", Since: lease.Micro(noon)}
}

// asking is the request of a heard agent on node n.
func asking(change ...func(*Agent)) PendingRequest {
	a := made("n", 0, change...)
	return PendingRequest{&Judged{Agent: &a, State: Alive}, request("p1")}
}

// refusal is the code and the reason of a ruling.
func refusal(r Decision) (Code, string) { return r.Code, r.Why }

// calm grounds: a thousand pods, nobody went.
func calm(change ...func(*Evaluation)) *Evaluation {
	g := &Evaluation{Time: noon, Settings: DefaultSettings(), Pods: 1000, Agents: 100, Pressed: newPressures(), Hard: newPressures(), Zones: map[string]Zone{"a": {Nodes: 100, Tainted: 1}}}
	for _, c := range change {
		c(g)
	}
	return g
}

// went so long ago, a pod of each owner.
func went(ago time.Duration, owners ...string) func(*Evaluation) {
	return func(g *Evaluation) {
		for _, o := range owners {
			g.PastEvictions = append(g.PastEvictions, PastEviction{UID: fmt.Sprint(len(g.PastEvictions)), Owner: o, Time: noon.Add(-ago)})
		}
	}
}

func pressed(resource string, n int) func(*Evaluation) {
	return func(g *Evaluation) { g.Pressed.Resources[resource] = n }
}

func says(plugin string, n int) func(*Evaluation) {
	return func(g *Evaluation) { g.Pressed.Plugins[plugin] = n }
}

// asks is the request of such a plugin.
func asks(plugin string) PendingRequest {
	a := asking()
	a.Plugin = plugin
	return a
}

func tainted(nodes, n int) func(*Evaluation) {
	return func(g *Evaluation) { g.Zones["a"] = Zone{Nodes: nodes, Tainted: n} }
}

var ten = []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

func TestEvaluationRefuse(t *testing.T) {
	small := func(g *Evaluation) { g.Pods = 40 }
	uncounted := func(g *Evaluation) { g.Pods = 0 }
	for what, row := range map[string]struct {
		grounds *Evaluation
		ask     PendingRequest
		code    Code
		why     string
	}{
		"nothing is against it":           {grounds: calm(), ask: asking()},
		"we are blind":                    {grounds: calm(func(g *Evaluation) { g.FullDisruption = true }), ask: asking(), code: CodeFullDisruption},
		"its agent is late":               {grounds: calm(), ask: PendingRequest{&Judged{Agent: asking().Agent, State: Late}, request("p1")}},
		"who went from it is not known":   {grounds: calm(), ask: asking(func(a *Agent) { a.ParseErr = errors.New("annotation x: y") }), code: CodeUnreadable, why: "annotation x: y"},
		"31 of 100 nodes have a pressure": {grounds: calm(pressed("disk", 31)), ask: asking(), code: CodeCommon, why: "31 of 100 nodes have pressure on disk"},
		"30 are no more than the share":   {grounds: calm(pressed("disk", 30), pressed("memory", 30)), ask: asking()},
		"two of two are no common cause":  {grounds: calm(pressed("disk", 2), func(g *Evaluation) { g.Agents = 2 }), ask: asking()},
		"three of three are":              {grounds: calm(pressed("disk", 3), func(g *Evaluation) { g.Agents = 3 }), ask: asking(), code: CodeCommon},
		"31 of 100, says the plugin that asks": {
			grounds: calm(says("files", 31)), ask: asks("files"), code: CodeCommon, why: "31 of 100 nodes have pressure reported by plugin files",
		},
		"30, says the plugin that asks":   {grounds: calm(says("files", 30)), ask: asks("files")},
		"all, says a plugin that may lie": {grounds: calm(says("files", 100)), ask: asks("memory-stall")},
		"11 of a zone's 100 are tainted":  {grounds: calm(tainted(100, 11)), ask: asking(), code: CodeZone, why: "11 of 100 nodes of zone \"a\" are tainted or not ready (limit 10)"},
		"10 of 100 may be":                {grounds: calm(tainted(100, 10)), ask: asking()},
		"one of a small zone may be":      {grounds: calm(tainted(3, 1)), ask: asking()},
		"two of a small zone":             {grounds: calm(tainted(3, 2)), ask: asking(), code: CodeZone},
		"another zone's do not count":     {grounds: calm(tainted(100, 90)), ask: asking(func(a *Agent) { a.Node.Labels = nil })},
		"ten of a thousand went":          {grounds: calm(went(time.Minute, ten...)), ask: asking(), code: CodeCluster, why: "10 of 1000 pods in 5m0s, 10 evicted; next eviction in 4m0s"},
		"nine went":                       {grounds: calm(went(time.Minute, ten[:9]...)), ask: asking()},
		"ten went, but long ago":          {grounds: calm(went(5*time.Minute, ten...)), ask: asking()},
		"ten went almost so long ago":     {grounds: calm(went(5*time.Minute-1, ten...)), ask: asking(), code: CodeCluster},
		"a small cluster has one":         {grounds: calm(small), ask: asking()},
		"and no more":                     {grounds: calm(small, went(time.Minute, "x")), ask: asking(), code: CodeCluster},
		"nobody could count the pods":     {grounds: calm(uncounted, went(time.Minute, "x")), ask: asking(), code: CodeCluster},
		"it was granted, and asked again": {grounds: calm(small, func(g *Evaluation) { g.PastEvictions = []PastEviction{{UID: "p1", Owner: "x", Time: noon}} }), ask: asking()},
		"the oldest says when the next is free": {
			grounds: calm(small, went(2*time.Minute, "x"), went(time.Minute, "y")), ask: asking(), code: CodeCluster, why: "next eviction in 4m0s",
		},
	} {
		t.Run(what, func(t *testing.T) {
			code, why := refusal(row.grounds.Refuse(row.ask))
			assert.Equal(t, row.code, code)
			assert.Contains(t, why, row.why)
			assert.Equal(t, code == "", why == "", "a refusal has a reason")
		})
	}
}

func TestZoneTooManyTaintedNodes(t *testing.T) {
	g := calm(tainted(100, 11), func(g *Evaluation) {
		g.Zones["b"], g.Zones["c"] = Zone{Nodes: 3, Tainted: 2}, Zone{Nodes: 3, Tainted: 1}
	})
	assert.Equal(t, []string{`11 of 100 nodes of zone "a" are tainted or not ready (limit 10)`, `2 of 3 nodes of zone "b" are tainted or not ready (limit 1)`}, g.Full())
	assert.Empty(t, calm().Full())
}

func TestRefusePod(t *testing.T) {
	for what, row := range map[string]struct {
		grounds *Evaluation
		pod     *corev1.Pod
		code    Code
		why     string
	}{
		"it may":                {pod: pod()},
		"there is none":         {code: CodeGone, why: "pod not found"},
		"it has another UID":    {pod: pod(func(p *corev1.Pod) { p.UID = "p2" }), code: CodeGone, why: "another UID"},
		"it has ended well":     {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), code: CodeGone, why: "Succeeded"},
		"it has failed":         {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), code: CodeGone, why: "Failed"},
		"it is on another node": {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName = "m" }), code: CodeWrongNode, why: `"m"`},
		"it is on no node":      {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), code: CodeWrongNode},
		"static": {pod: pod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", Controller: new(true)}}
		}), code: CodeProtected, why: "static pod"},
		"static by annotation": {pod: pod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
		})},
		"a mover by label":          {pod: pod(func(p *corev1.Pod) { p.Labels = map[string]string{"velero.io/data-upload": "u"} })},
		"critical":                  {pod: pod(func(p *corev1.Pod) { p.Spec.Priority = new(int32(2_000_000_000)) }), code: CodeProtected, why: "priority"},
		"of a DaemonSet":            {pod: pod(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }), code: CodeProtected, why: "DaemonSet"},
		"nobody's":                  {pod: pod(func(p *corev1.Pod) { p.OwnerReferences = nil }), code: CodeProtected, why: "controller"},
		"of the system's namespace": {pod: pod(func(p *corev1.Pod) { p.Namespace = "kube-system" }), code: CodeProtected, why: "kube-system"},
		"of Velero's, a mover": {pod: pod(func(p *corev1.Pod) {
			p.Labels = map[string]string{"velero.io/data-upload": "u"}
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "velero.io/v2alpha1", "DataUpload"
		}), code: CodeProtected, why: "Velero"},
		"whose volume is asked for apart": {pod: pod(func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{claim("data")} })},
		"a sibling went":                  {grounds: calm(went(9*time.Minute, "shop/ReplicaSet/web")), pod: pod(), code: CodeOwner, why: "next eviction in 1m0s"},
		"a sibling went long ago":         {grounds: calm(went(10*time.Minute, "shop/ReplicaSet/web")), pod: pod()},
		"one of another namespace went":   {grounds: calm(went(0, "bank/ReplicaSet/web")), pod: pod()},
		"it went itself, says no answer": {grounds: calm(func(g *Evaluation) {
			g.PastEvictions = []PastEviction{{UID: "p1", Owner: "shop/ReplicaSet/web", Time: noon}}
		}), pod: pod()},
	} {
		t.Run(what, func(t *testing.T) {
			g := row.grounds
			if g == nil {
				g = calm()
			}
			code, why := refusal(g.RefusePod(asking(), row.pod))
			assert.Equal(t, row.code, code, why)
			assert.Contains(t, why, row.why)
			assert.Equal(t, code == "", why == "", "a refusal has a reason")
		})
	}
}

func claim(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// carrying answers, of a node that has been judged alive.
func carrying(name string, answers ...lease.Answer) Judged {
	a := made(name, 0, func(a *Agent) { a.Carried.Answers = answers })
	return Judged{Agent: &a, State: Alive}
}

func accepted(uid, owner string, ago time.Duration) lease.Answer {
	return lease.Answer{UID: uid, Owner: owner, Since: lease.Micro(noon), Result: lease.Accepted, At: lease.Micro(noon.Add(-ago))}
}

func TestEvaluationOfNewLeader(t *testing.T) {
	refused, dryRun := accepted("p3", "c", 0), accepted("p5", "", 0)
	refused.Result = lease.Refused
	silent := carrying("s", accepted("p4", "d", time.Minute))
	silent.State, silent.Carried.Report.Pressure = Silent, map[string]string{"disk": "hard"}
	loud := carrying("l", accepted("p2", "b", -time.Hour))
	loud.Carried.Report.Pressure = map[string]string{"disk": "soft", "memory": "hard"}
	j := &Judgement{Agents: []Judged{carrying("n", accepted("p1", "a", time.Minute), refused, dryRun), loud, silent}}
	g := NewEvaluation(noon, DefaultSettings(), j, History{Own: []PastEviction{{UID: "p1", Owner: "a", Node: "n", Zone: "a", Time: noon}}, ServerTime: noon})
	assert.ElementsMatch(t, []PastEviction{
		{UID: "p1", Owner: "a", Node: "n", Zone: "a", Time: noon}, // known by both, counted once
		{UID: "p2", Owner: "b", Node: "l", Zone: "a", Time: noon}, // by a clock that is ahead
		{UID: "p4", Owner: "d", Node: "s", Zone: "a", Time: noon.Add(-time.Minute)},
	}, g.PastEvictions)
	assert.Equal(t, map[string]int{"disk": 1, "memory": 1}, g.Pressed.Resources, "the word of a silent agent is old")
	assert.Equal(t, map[string]int{"memory": 1}, g.Hard.Resources)
	assert.Equal(t, 2, g.Agents)
	assert.Equal(t, map[string]Zone{"a": {Nodes: 2, Tainted: 1}}, g.Zones, "and where it has pressure is not known")
}

func TestEvaluationPodInTwoLeases(t *testing.T) {
	j := &Judgement{Agents: []Judged{carrying("n", accepted("p1", "a", time.Minute)), carrying("m", accepted("p1", "a", time.Minute))}}
	g := NewEvaluation(noon, DefaultSettings(), j, History{ServerTime: noon})
	assert.Len(t, g.PastEvictions, 1)
}

// The Lease is as the watch last brought it, without the answer that was just given.
func TestEvaluationNoteOfPodThatStays(t *testing.T) {
	note := accepted("p1", "a", time.Minute)
	note.Since = metav1.MicroTime{}
	given := func(r lease.Result, code Code) lease.Answer {
		return lease.Answer{UID: "p1", Since: lease.Micro(noon), Result: r, Code: string(code), At: lease.Micro(noon)}
	}
	for what, row := range map[string]struct {
		given lease.Answer
		count int
	}{
		"a disruption budget forbids": {given(lease.Blocked, ""), 0},
		"the API server refuses":      {given(lease.Refused, ""), 0},
		"a limit forbids":             {given(lease.Refused, CodeCluster), 1},
		"it is gone":                  {given(lease.Gone, ""), 1},
		"it was evicted":              {accepted("p1", "a", 0), 1},
	} {
		j := &Judgement{Agents: []Judged{carrying("n", note)}}
		g := NewEvaluation(noon, DefaultSettings(), j, History{ServerTime: noon, Answers: map[string][]lease.Answer{"n": {row.given}}})
		assert.Len(t, g.PastEvictions, row.count, what)
	}
}

// An answer to a repeated request takes the place of the earlier one, unless that counts longer.
func TestAnswersRepeatedEviction(t *testing.T) {
	earlier, later := accepted("p1", "o", time.Minute), accepted("p1", "o", 0)
	earlier.Since = lease.Micro(noon.Add(-time.Minute))
	braked := earlier
	braked.PassedBrake = string(BrakeCommon)
	note := later
	note.Since = metav1.MicroTime{}
	for what, row := range map[string]struct {
		asked   []lease.Request
		carried lease.Answer
		given   lease.Answer
		want    []lease.Answer
	}{
		"it is accepted again":     {[]lease.Request{request("p1")}, earlier, later, []lease.Answer{later}},
		"both are requested":       {[]lease.Request{{UID: "p1", Since: earlier.Since}, request("p1")}, earlier, later, []lease.Answer{earlier, later}},
		"the first passed a brake": {[]lease.Request{request("p1")}, braked, later, []lease.Answer{braked, later}},
		"it is tried again":        {[]lease.Request{request("p1")}, earlier, note, []lease.Answer{earlier, note}},
		"neither is requested":     {nil, earlier, later, []lease.Answer{later}},
	} {
		c := lease.Content{Requests: row.asked, Answers: []lease.Answer{row.carried}}
		assert.Equal(t, row.want, Answers(noon, DefaultSettings(), c, []lease.Answer{row.given}), what)
	}
}

func TestEvaluationNodeCountsOnce(t *testing.T) {
	a := carrying("n")
	a.Carried.Report = lease.NodeReport{Pressure: map[string]string{"disk": "soft"}, Plugins: map[string]string{"files": "hard"}}
	g := NewEvaluation(noon, DefaultSettings(), &Judgement{Agents: []Judged{a}}, History{ServerTime: noon})
	assert.Equal(t, map[string]Zone{"a": {Nodes: 1, Tainted: 1}}, g.Zones)
}

func TestOwnerNameFitsLease(t *testing.T) {
	of := func(kind string) string {
		return OwnerOf(pod(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = kind }))
	}
	assert.Equal(t, "shop/Foo~!/web-5c7d", of("Foo~!"))
	for _, kind := range []string{"Foo Bar", "Foo\x7f", "Fo\u00f6", "Foo<", "Foo\n"} {
		assert.Contains(t, of(kind), "shop/sha256:", kind)
	}
	assert.Equal(t, "shop//web-5c7d-x", OwnerOf(pod(func(p *corev1.Pod) { p.OwnerReferences = nil })), "it is its own")
}

func TestPendingRequestsAnsweredOnce(t *testing.T) {
	first, again := request("p1"), request("p1")
	again.Since = lease.Micro(noon.Add(time.Minute))
	answer := accepted("p1", "", 0)
	early, late := carrying("early"), carrying("late", answer)
	early.RequestedAt, early.Carried.Requests = noon, []lease.Request{request("p9")}
	late.RequestedAt, late.Carried.Requests = noon.Add(-time.Second), []lease.Request{first, again}
	asks := func() (got []string) {
		for _, a := range PendingRequests(noon, DefaultSettings(), &Judgement{Agents: []Judged{early, late}}, new(newJournal()).evaluatedAt) {
			got = append(got, a.Judged.Name+" "+a.UID+" "+a.Since.Sub(noon).String())
		}
		return got
	}
	assert.Empty(t, asks(), "no renewal was seen: both may be long dead")
	early.LastRenewal, late.LastRenewal = noon, noon.Add(-20*time.Second+1)
	assert.Equal(t, []string{"late p1 1m0s", "early p9 0s"}, asks())
	late.LastRenewal = noon.Add(-20 * time.Second)
	assert.Equal(t, []string{"early p9 0s"}, asks(), "whoever does not beat may not want it any more")
}

func TestLeaseKeepsAnswersThatCount(t *testing.T) {
	blocked := lease.Answer{UID: "b", Since: lease.Micro(noon), Result: lease.Blocked, At: lease.Micro(noon.Add(-time.Hour))}
	old := blocked
	old.UID = "old"
	carried := lease.Content{
		Requests: []lease.Request{request("b"), request("new")},
		Answers:  []lease.Answer{blocked, old, accepted("went", "o", 9*time.Minute), accepted("long ago", "o", 10*time.Minute)},
	}
	given := []lease.Answer{{UID: "new", Since: lease.Micro(noon), Result: lease.Refused, At: lease.Micro(noon)}, blocked}
	var got []string
	for _, a := range Answers(noon, DefaultSettings(), carried, given) {
		got = append(got, a.UID)
	}
	assert.Equal(t, []string{"went", "new", "b"}, got)
}

// The note is written before the API server is asked, so that a leader that is
// killed before it has answered leaves a pod that counts.
func TestNoteCountsUntilPodStays(t *testing.T) {
	note := accepted("p1", "o", time.Minute)
	note.Since = metav1.MicroTime{}
	said := func(r lease.Result, code Code) lease.Answer {
		return lease.Answer{UID: "p1", Since: lease.Micro(noon), Result: r, Code: string(code), At: lease.Micro(noon)}
	}
	assert.False(t, answered(request("p1"), []lease.Answer{note}), "it answers nobody")
	dry := said(lease.Accepted, "")
	dry.DryRun = true
	again, old := note, accepted("p1", "o", 11*time.Minute)
	again.At, old.Since = lease.Micro(noon), metav1.MicroTime{}
	for what, row := range map[string]struct {
		carried, given []lease.Answer
		want           []lease.Answer
	}{
		"nobody knows":                 {carried: []lease.Answer{note}, want: []lease.Answer{note}},
		"it is tried again":            {carried: []lease.Answer{note}, given: []lease.Answer{again}, want: []lease.Answer{again}},
		"long ago":                     {carried: []lease.Answer{old}, want: []lease.Answer{}},
		"it went":                      {carried: []lease.Answer{note}, given: []lease.Answer{again, accepted("p1", "o", 0)}, want: []lease.Answer{accepted("p1", "o", 0)}},
		"a disruption budget forbids":  {carried: []lease.Answer{note}, given: []lease.Answer{said(lease.Blocked, "")}, want: []lease.Answer{said(lease.Blocked, "")}},
		"the API server refuses":       {carried: []lease.Answer{note}, given: []lease.Answer{said(lease.Refused, "")}, want: []lease.Answer{said(lease.Refused, "")}},
		"it is gone, by us surely":     {carried: []lease.Answer{note}, given: []lease.Answer{said(lease.Gone, "")}, want: []lease.Answer{note, said(lease.Gone, "")}},
		"it is gone, by us perhaps":    {carried: []lease.Answer{note}, given: []lease.Answer{said(lease.Gone, CodeGone)}, want: []lease.Answer{note, said(lease.Gone, CodeGone)}},
		"a budget is against it since": {carried: []lease.Answer{note}, given: []lease.Answer{said(lease.Refused, CodeCluster)}, want: []lease.Answer{note, said(lease.Refused, CodeCluster)}},
		"it was asked for before":      {carried: []lease.Answer{said(lease.Blocked, "")}, given: []lease.Answer{note}, want: []lease.Answer{said(lease.Blocked, ""), note}},
		"a dry run of it goes":         {carried: []lease.Answer{note}, given: []lease.Answer{dry}, want: []lease.Answer{note, dry}},
		"another pod's":                {carried: []lease.Answer{note}, given: []lease.Answer{accepted("p2", "o", 0)}, want: []lease.Answer{note, accepted("p2", "o", 0)}},
	} {
		t.Run(what, func(t *testing.T) {
			c := lease.Content{Requests: []lease.Request{request("p1")}, Answers: row.carried}
			got := Answers(noon, DefaultSettings(), c, row.given)
			assert.Equal(t, row.want, got)
			c.Answers = got
			assert.Equal(t, got, Answers(noon, DefaultSettings(), c, row.given), "what is written once is not written again")
		})
	}
}

// slowly is the budgets by the book: the longest list of those who could go,
// each looked at on its own.
func slowly(s Evictions, pods int, all []PastEviction, w PastEviction) bool {
	inPeriod, ofOwner := 0, 0
	for _, o := range all {
		if w.Time.Sub(o.Time) < s.Per {
			inPeriod++
		}
		if w.Time.Sub(o.Time) < s.PerOwner && o.Owner == w.Owner {
			ofOwner++
		}
	}
	limit := pods / 100
	if limit == 0 {
		limit = 1
	}
	return inPeriod < limit && ofOwner == 0
}

func FuzzRequestsWithinEvictionLimit(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint16(300))
	f.Add([]byte{0, 0, 0, 0, 200, 0, 0, 1}, uint16(1))
	f.Add([]byte{0, 5, 1}, uint16(1)) // a dry run asks for the pod of a leader that was killed
	f.Fuzz(func(t *testing.T, history []byte, pods uint16) {
		s := DefaultSettings()
		now := noon
		var all []PastEviction
		var leases []lease.Answer
		for i, b := range history {
			now = now.Add(time.Duration(b>>2) * time.Second)
			if b%5 == 0 && len(all) > 0 { // a plugin in a dry run asks for the last one, too
				dry := lease.Answer{UID: all[len(all)-1].UID, Since: lease.Micro(now), Result: lease.Accepted, DryRun: true, At: lease.Micro(now)}
				leases = Answers(now, s, lease.Content{Requests: []lease.Request{{UID: dry.UID, Since: dry.Since}}, Answers: leases}, []lease.Answer{dry})
			}
			a := asking()
			a.UID, a.Request.Name = fmt.Sprint("u", i), fmt.Sprintf("app%d-1-x", b&3)
			p := pod(func(p *corev1.Pod) {
				p.UID, p.OwnerReferences[0].Name = types.UID(a.UID), fmt.Sprintf("app%d-1", b&3)
			})
			// Every leader is a new one: it knows but what the Leases say.
			node := carrying("n", leases...)
			g := NewEvaluation(now, s, &Judgement{Agents: []Judged{node}}, History{ServerTime: now})
			g.Pods = int(pods)
			code, _ := refusal(g.Refuse(a))
			if code == "" {
				code, _ = refusal(g.RefusePod(a, p))
			}
			w := PastEviction{UID: a.UID, Owner: OwnerOf(p), Time: now}
			require.Equal(t, slowly(s.Evictions, int(pods), all, w), code == "", "%s at %s", code, now)
			if code != "" {
				continue
			}
			all = append(all, w)
			note := lease.Answer{UID: w.UID, Owner: w.Owner, Result: lease.Accepted, At: lease.Micro(now)}
			leases = Answers(now, s, lease.Content{Answers: leases}, []lease.Answer{note})
			if b%3 == 0 {
				continue // the leader was killed before it has answered
			}
			note.Since = lease.Micro(now)
			leases = Answers(now, s, lease.Content{Answers: leases}, []lease.Answer{note})
		}
	})
}

func FuzzUnreadableLeaseApprovesNothing(f *testing.F) {
	text, err := json.Marshal([]lease.Request{request("p1")})
	require.NoError(f, err)
	f.Add(string(text), `[]`, `{"pressure":{"disk":"hard"}}`)
	f.Add(string(text), `[{"uid":"p1"`, `{}`)
	f.Fuzz(func(t *testing.T, requests, answers, report string) {
		a := made("n", 0)
		a.LastRenewal = noon
		a.Carried, a.ParseErr = lease.ReadContent(map[string]string{
			lease.EvictionsAnnotation: requests, lease.AnswersAnnotation: answers, lease.NodeAnnotation: report,
		})
		j := Judge(Observation{Time: noon, Settings: DefaultSettings(), Agents: []Agent{a}})
		g := NewEvaluation(noon, DefaultSettings(), &j, History{ServerTime: noon})
		for _, ask := range PendingRequests(noon, DefaultSettings(), &j, new(newJournal()).evaluatedAt) {
			code, _ := refusal(g.Refuse(ask))
			require.Equal(t, a.ParseErr != nil, code == CodeUnreadable)
		}
	})
}
