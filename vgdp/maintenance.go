package vgdp

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Velero's server maintains each backup repository by a Job, when its last maintenance is
// as long ago as spec.maintenanceFrequency says. It looks every 5 min, and at once when the
// spec of a BackupRepository changes. While a Job has not ended that server prepares no new
// repository, and a Backup that needs one fails after 10 min: so a Job that exists is never
// held. A maintenance is postponed before there is a Job, by a longer frequency.
//
// pkg/controller/backup_repository_controller.go and pkg/repository/maintenance of Velero
// 1.16 to 1.18.

const (
	// MaxPostpone is how long after it was due a maintenance is postponed at most: longer
	// than the 4 h after which Velero cancels what lasts.
	MaxPostpone = 6 * time.Hour
	// PostponeStep is how far ahead a maintenance is postponed at a time. When no controller
	// renews it, the repository becomes due then by itself.
	PostponeStep = 30 * time.Minute
	// postponeAhead is how long before it is due a maintenance is postponed, since Velero
	// may start it in that very moment.
	postponeAhead = time.Minute
)

// RepositoryKey is what a backup repository holds: the volumes of a namespace, in a
// BackupStorageLocation.
type RepositoryKey struct{ VolumeNamespace, Location string }

// Repository is a backup repository of a Velero.
type Repository struct {
	Namespace, Name string // the namespace is that of its Velero
	Key             RepositoryKey
	// Frequency between two maintenances, as its spec says, and as a duration; 0: not
	// readable, or not set yet.
	FrequencyText string
	Frequency     time.Duration
	// Last maintenance; zero: none, and then Velero does not read the frequency.
	Last time.Time
	// Postponed is what a controller has postponed it by; nil: nothing.
	Postponed *Postponed
}

// Postponed is in the annotation plimsoll.dev/postponed-maintenance of a BackupRepository,
// as JSON.
type Postponed struct {
	// Was is the frequency before, and Set the one that the controller wrote. A spec with
	// another one was changed by a user, and stays as it is.
	Was string `json:"was"`
	Set string `json:"set"`
}

// Maintenances are all that the decisions about maintenances depend on.
type Maintenances struct {
	// Enabled: whether any is postponed. Off are the Veleros of which none is all the same, by
	// namespace.
	Enabled      bool
	Off          map[string]bool
	Repositories []Repository
	// InUse is why a repository is in use, by the namespace of its Velero.
	InUse map[string]map[RepositoryKey]string
	// Nodes on which the pod of a maintenance may run; empty: unknown, and then none is
	// postponed for want of a node. Pressed are those of them under pressure, with the
	// reason.
	Nodes   []string
	Pressed map[string]string
	// Running are the pods of maintenances that have not ended.
	Running []MaintenancePod
}

// AddInUse adds why repositories are in use: a data mover load that is on its way reads or
// writes them.
func (m *Maintenances) AddInUse(loads []Load, now time.Time) {
	for i := range loads {
		l := &loads[i]
		if l.OnItsWay(now) && l.Repository != (RepositoryKey{}) {
			m.Use(l.Namespace, l.Repository, fmt.Sprintf("%s %s is on its way", l.Kind, l.Name))
		}
	}
}

// Use records that a repository of a Velero is in use. Of several reasons one is kept,
// always the same.
func (m *Maintenances) Use(namespace string, key RepositoryKey, why string) {
	if m.InUse == nil {
		m.InUse = map[string]map[RepositoryKey]string{}
	}
	if m.InUse[namespace] == nil {
		m.InUse[namespace] = map[RepositoryKey]string{}
	}
	if was := m.InUse[namespace][key]; was == "" || why < was {
		m.InUse[namespace][key] = why
	}
}

// MaintenancePod is the pod of a maintenance. Node is empty before it is scheduled.
type MaintenancePod struct{ Namespace, Node string }

// MaintenanceDecision is what to do about the maintenances.
type MaintenanceDecision struct {
	Writes []FrequencyWrite
	// Postponed are the maintenances that are due and do not start, in the order of the
	// repositories.
	Postponed []PostponedMaintenance
	// Away are the nodes that get no new pod of a maintenance; empty where none would be
	// left.
	Away []string
}

// FrequencyWrite changes the frequency of a repository.
type FrequencyWrite struct {
	*Repository
	// Text of the new frequency; empty: it stays.
	Text string
	// Postponed is the new annotation; nil: none, it is handed back.
	Postponed *Postponed
	Why       string
}

// PostponedMaintenance is one that would be due.
type PostponedMaintenance struct {
	Namespace  string    `json:"-"` // of its Velero
	Repository string    `json:"repository"`
	Due        time.Time `json:"due"`
	// Until when it is postponed at most, whatever happens.
	Until time.Time `json:"until"`
	Why   string    `json:"reason"`
}

// HandedBack is the frequency that the repository has after the write.
func (w *FrequencyWrite) HandedBack() string { return cmp.Or(w.Text, w.FrequencyText) }

// Release hands the frequency back; nil: it is not ours.
func (r *Repository) Release() *FrequencyWrite { return r.write(time.Time{}, "") }

// Decide decides about all maintenances.
func (m *Maintenances) Decide(now time.Time) MaintenanceDecision {
	d := MaintenanceDecision{Away: m.away()}
	without := m.withoutNode(now)
	for i := range m.Repositories {
		r := &m.Repositories[i]
		why := cmp.Or(m.InUse[r.Namespace][r.Key], without[r.Namespace])
		if !m.Enabled || m.Off[r.Namespace] || !r.postponable(now) {
			why = ""
		}
		if why != "" {
			d.Postponed = append(d.Postponed, PostponedMaintenance{Namespace: r.Namespace, Repository: r.Name, Due: r.due(), Until: r.due().Add(MaxPostpone), Why: why})
		}
		if w := r.write(now, why); w != nil {
			d.Writes = append(d.Writes, *w)
		}
	}
	return d
}

// own is the frequency without ours, and as it was written.
func (r *Repository) own() (time.Duration, string) {
	if !r.ours() {
		return r.Frequency, r.FrequencyText
	}
	was, _ := time.ParseDuration(r.Postponed.Was) // ours has read it
	return was, r.Postponed.Was
}

// ours tells whether the frequency in the spec is the controller's. Was may only be
// shorter: an annotation that another one wrote makes no repository be maintained less often.
func (r *Repository) ours() bool {
	if r.Postponed == nil {
		return false
	}
	was, badWas := time.ParseDuration(r.Postponed.Was)
	set, badSet := time.ParseDuration(r.Postponed.Set)
	return badWas == nil && badSet == nil && set == r.Frequency && 0 < was && was < set
}

func (r *Repository) due() time.Time {
	own, _ := r.own()
	return r.Last.Add(own)
}

// postponable tells whether it is due, or will be at once, and may still be postponed.
func (r *Repository) postponable(now time.Time) bool {
	own, _ := r.own()
	return own > 0 && !r.Last.IsZero() && !now.Before(r.due().Add(-postponeAhead)) && now.Before(r.due().Add(MaxPostpone))
}

// write is what to write to it: nil for nothing. why is empty where it is not postponed.
func (r *Repository) write(now time.Time, why string) *FrequencyWrite {
	_, was := r.own()
	switch {
	case why == "" && r.Postponed == nil:
		return nil
	case why == "" && r.ours():
		return &FrequencyWrite{Repository: r, Text: was}
	case why == "":
		return &FrequencyWrite{Repository: r}
	}
	latest := r.due().Add(MaxPostpone)
	left := min(PostponeStep/2, latest.Sub(now)) - time.Second // whole seconds are written
	if r.ours() && r.Last.Add(r.Frequency).Sub(now) >= left {
		return nil
	}
	until := now.Add(PostponeStep)
	if until.After(latest) {
		until = latest
	}
	set := until.Sub(r.Last).Truncate(time.Second).String()
	return &FrequencyWrite{Repository: r, Text: set, Postponed: &Postponed{Was: was, Set: set}, Why: why}
}

// occupied are the nodes with the pod of a maintenance, and the Veleros with one.
func (m *Maintenances) occupied() (nodes map[string]bool, veleros map[string]string) {
	nodes, veleros = map[string]bool{}, map[string]string{}
	for _, p := range m.Running {
		veleros[p.Namespace] = p.Node
		if p.Node != "" {
			nodes[p.Node] = true
		}
	}
	return nodes, veleros
}

// available are the nodes that are neither under pressure nor have a maintenance.
func (m *Maintenances) available() (list []string) {
	occupied, _ := m.occupied()
	for _, node := range m.Nodes {
		if _, pressed := m.Pressed[node]; !pressed && !occupied[node] {
			list = append(list, node)
		}
	}
	return list
}

// away are the nodes that get no new maintenance. A pod without a node to run on would
// keep its Velero from preparing repositories, so where none is left none is kept away.
func (m *Maintenances) away() (list []string) {
	if !m.Enabled || len(m.available()) == 0 {
		return nil
	}
	occupied, _ := m.occupied()
	for node := range occupied {
		list = append(list, node)
	}
	for node := range m.Pressed {
		if !occupied[node] {
			list = append(list, node)
		}
	}
	slices.Sort(list)
	return list
}

// withoutNode is why each Velero has no node for its next maintenance. A Velero runs one
// maintenance at a time. One that runs one has that node, unless it is under pressure; the
// others get an available node each, the one that is due longest first.
func (m *Maintenances) withoutNode(now time.Time) map[string]string {
	if len(m.Nodes) == 0 {
		return nil
	}
	_, running := m.occupied()
	available := len(m.available())
	without := map[string]string{}
	for _, namespace := range m.inOrder(now) {
		if node, runs := running[namespace]; runs && m.Pressed[node] == "" {
			continue
		}
		if available > 0 {
			available--
			continue
		}
		without[namespace] = m.noNode()
	}
	return without
}

// noNode says why no node is available.
func (m *Maintenances) noNode() string {
	var first string
	pressed := 0
	for _, node := range m.Nodes {
		if why := m.Pressed[node]; why != "" {
			pressed++
			first = cmp.Or(first, fmt.Sprintf("node %s: %s", node, why))
		}
	}
	if pressed == 0 {
		return fmt.Sprintf("maintenances run, or are next, on all %d nodes", len(m.Nodes))
	}
	return fmt.Sprintf("no node is available: %d of %d are under pressure (%s)", pressed, len(m.Nodes), first)
}

// inOrder are the Veleros with a maintenance to start, the one that is due longest first.
func (m *Maintenances) inOrder(now time.Time) []string {
	first := map[string]time.Time{}
	for i := range m.Repositories {
		r := &m.Repositories[i]
		if m.Off[r.Namespace] || !r.postponable(now) || m.InUse[r.Namespace][r.Key] != "" {
			continue
		}
		if due, there := first[r.Namespace]; !there || r.due().Before(due) {
			first[r.Namespace] = r.due()
		}
	}
	list := make([]string, 0, len(first))
	for namespace := range first {
		list = append(list, namespace)
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(first[a].Compare(first[b]), cmp.Compare(a, b)) })
	return list
}
