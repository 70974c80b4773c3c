package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// Disruption is what the PodDisruptionBudgets that select a pod report. It is for outer
// plugins: whether a pod may be evicted is decided by the API server.
type Disruption struct {
	// HasPDB is false for a pod that none selects; its figures are 0 and mean nothing.
	HasPDB bool
	// Allowed is how many pods may be evicted now (disruptionsAllowed). It is 0 where
	// several PodDisruptionBudgets select the pod: the API server then refuses each
	// eviction. The other figures are of the one that allows the fewest.
	Allowed, CurrentHealthy, DesiredHealthy, ExpectedPods int32
}

// Limits of the requests. One namespace is read once in disruptionMaxAge, so a node
// sends at most maxDisruptionNamespaces requests in that time.
const (
	disruptionMaxAge        = time.Minute
	maxDisruptionNamespaces = 8
	maxDisruptionBytes      = 1 << 20     // of one namespace; about 500 PodDisruptionBudgets
	disruptionTimeout       = time.Second // of all requests for one question
	// disruptionBegin is the time in which they may begin: one that began later would have
	// too little time, and a fast namespace would count as unreadable for a slow one's sake.
	disruptionBegin = disruptionTimeout / 2
	// disruptionWarned is how long a failure counts as known after the last one.
	disruptionWarned = 10 * disruptionMaxAge
)

// DisruptionReader reads the PodDisruptionBudgets of namespaces when it is asked, and at
// no other time: a watch would get each change of each of them, which on a namespace
// with pods on all nodes is a message to all nodes for each pod that becomes ready. It
// needs list of poddisruptionbudgets in all namespaces (deploy/rbac-katalyst.yaml).
type DisruptionReader struct {
	// REST is a client of core/v1.
	REST rest.Interface
	Pods *Watcher
	Log  *slog.Logger

	// mu guards all below. It is held during a request, so that two plugins that ask at
	// the same time send one.
	mu   sync.Mutex
	read map[string]namespacePDBs
	// failing is when each namespace that cannot be read failed last. While there is one
	// nothing is logged.
	failing map[string]time.Time
}

// namespacePDBs is the answer for one namespace, or that there was none.
type namespacePDBs struct {
	at   time.Time
	list []selectingPDB
	err  error
}

// selectingPDB is what is kept of a PodDisruptionBudget.
type selectingPDB struct {
	selects labels.Selector
	// current: the figures are of the specification as it is now.
	current bool
	figures Disruption
}

// Of returns, by UID, the figures of those pods of the node for which they are known,
// at most disruptionMaxAge old.
func (r *DisruptionReader) Of(ctx context.Context, now time.Time, uids []string) map[string]Disruption {
	ctx, cancel := context.WithTimeout(ctx, disruptionTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	begin := time.Now().Add(disruptionBegin)
	maps.DeleteFunc(r.failing, func(_ string, at time.Time) bool { return now.Sub(at) >= disruptionWarned || now.Before(at) })
	maps.DeleteFunc(r.read, func(_ string, n namespacePDBs) bool {
		return now.Sub(n.at) >= disruptionMaxAge || now.Before(n.at)
	})
	known := map[string]Disruption{}
	for _, pod := range r.Pods.labelled(uids) {
		list, err := r.namespace(ctx, now, begin, pod.Namespace)
		if err != nil {
			continue
		}
		if d, is := disruptionOf(labels.Set(pod.Labels), list); is {
			known[string(pod.UID)] = d
		}
	}
	return known
}

// disruptionOf returns the figures for a pod with these labels; false while they are not
// known.
func disruptionOf(of labels.Set, list []selectingPDB) (Disruption, bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(p selectingPDB) bool { return !p.selects.Matches(of) })
	switch {
	case len(list) == 0:
		return Disruption{}, true
	case slices.ContainsFunc(list, func(p selectingPDB) bool { return !p.current }):
		return Disruption{}, false
	}
	d := slices.MinFunc(list, func(a, b selectingPDB) int { return cmp.Compare(a.figures.Allowed, b.figures.Allowed) }).figures
	if len(list) > 1 {
		d.Allowed = 0
	}
	return d, true
}

var (
	errManyNamespaces = errors.New("the limit of requests is reached")
	errLate           = errors.New("the time of this question is over")
)

// namespace returns the PodDisruptionBudgets of a namespace. Only a request that begins
// before begin is sent, and its answer, or that there was none, is kept.
func (r *DisruptionReader) namespace(ctx context.Context, now, begin time.Time, name string) ([]selectingPDB, error) {
	if n, is := r.read[name]; is {
		return n.list, n.err
	}
	if len(r.read) >= maxDisruptionNamespaces {
		return nil, errManyNamespaces
	}
	if ctx.Err() != nil || !time.Now().Before(begin) {
		return nil, errLate
	}
	list, err := r.list(ctx, name)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, errLate // the caller left: that says nothing of the namespace
	}
	if r.read == nil {
		r.read, r.failing = map[string]namespacePDBs{}, map[string]time.Time{}
	}
	r.read[name] = namespacePDBs{now, list, err}
	r.log(now, name, err)
	return list, err
}

// log warns of the first namespace that cannot be read; of others only when all could be
// read in between.
func (r *DisruptionReader) log(now time.Time, namespace string, err error) {
	if err == nil {
		delete(r.failing, namespace)
		return
	}
	if len(r.failing) == 0 {
		do := "plugins go without the figures until a request succeeds"
		if apierrors.IsForbidden(err) {
			do = "apply deploy/rbac-katalyst.yaml (katalyst: true in the chart), or ignore this if no plugin needs the figures"
		}
		r.Log.Warn("cannot read PodDisruptionBudgets, so outer plugins get no eviction records of pods there", "namespace", namespace, "error", err, "do", do)
	}
	r.failing[namespace] = now
}

// list asks the API server's cache (resourceVersion 0): what it says may be a moment old.
func (r *DisruptionReader) list(ctx context.Context, namespace string) ([]selectingPDB, error) {
	body, err := r.REST.Get().AbsPath("/apis/policy/v1/namespaces", namespace, "poddisruptionbudgets").MaxRetries(0).
		Param("resourceVersion", "0").SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxDisruptionBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDisruptionBytes {
		return nil, fmt.Errorf("the PodDisruptionBudgets of namespace %s have more than %d bytes", namespace, maxDisruptionBytes)
	}
	var found policyv1.PodDisruptionBudgetList
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, err
	}
	return selectingPDBs(found.Items)
}

func selectingPDBs(items []policyv1.PodDisruptionBudget) ([]selectingPDB, error) {
	list := make([]selectingPDB, 0, len(items))
	for i := range items {
		spec, status := &items[i].Spec, &items[i].Status
		selects, err := metav1.LabelSelectorAsSelector(spec.Selector) // nil selects none, {} all
		if err != nil {
			return nil, fmt.Errorf("PodDisruptionBudget %s: %w", items[i].Name, err)
		}
		list = append(list, selectingPDB{selects, status.ObservedGeneration >= items[i].Generation, Disruption{
			HasPDB: true, Allowed: status.DisruptionsAllowed,
			CurrentHealthy: status.CurrentHealthy, DesiredHealthy: status.DesiredHealthy, ExpectedPods: status.ExpectedPods,
		}})
	}
	return list, nil
}
