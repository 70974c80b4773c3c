package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Names of knobs.
const (
	Read  = "read"  // bytes per second of a device
	Write = "write" // the same
	CPU   = "cpu"   // µs of CPU time per period
	// Memory in bytes, from which on the kernel makes a cgroup wait. It is no less than what
	// the cgroup holds when it is first set, and never lowered: it would wait with what it holds.
	Memory = "memory"
	// Resize is the CPU limit of a container in the API, in millicores.
	Resize = "resize"
)

// Knob is one limit that a cgroup can have.
type Knob struct {
	// Cgroup is the path below the hierarchy's directory.
	Cgroup string `json:"cgroup"`
	// Name is Read, Write, CPU, Memory or Resize.
	Name string `json:"name"`
	// Device as major:minor, of Read and Write alone.
	Device string `json:"device,omitempty"`
	// Container of Resize alone.
	Container Container `json:"container,omitzero"`
}

// Container of a pod in the API.
type Container struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Name      string `json:"name"`
}

func (c Container) compare(o Container) int {
	return cmp.Or(cmp.Compare(c.UID, o.UID), cmp.Compare(c.Name, o.Name))
}

// String is for people.
func (k Knob) String() string {
	if k.Name == Resize {
		return "CPU of container " + k.Container.Name + " of " + k.Container.Namespace + "/" + k.Container.Pod
	}
	if k.Device == "" {
		return k.Cgroup + " " + k.Name
	}
	return k.Cgroup + " " + k.Name + " " + k.Device
}

// disk tells whether it limits a disk.
func (k Knob) disk() bool { return k.Resource() == snapshot.SharedDisk }

// Resource that it limits.
func (k Knob) Resource() snapshot.SharedResource {
	switch k.Name {
	case Read, Write:
		return snapshot.SharedDisk
	case Memory:
		return snapshot.SharedMemory
	}
	return snapshot.SharedCPU
}

// compare orders those of disks last: one of them may hang.
func (k Knob) compare(o Knob) int {
	return cmp.Or(cmp.Compare(k.Device, o.Device), cmp.Compare(k.Cgroup, o.Cgroup), cmp.Compare(k.Name, o.Name), k.Container.compare(o.Container))
}

// Limit is a knob that the agent has set. 0 means no limit, as everywhere in this
// package.
type Limit struct {
	Knob
	// Original is the value before the agent's first write, which is restored.
	Original uint64 `json:"before,omitempty"`
	// Replaced is the value that Ours replaces, and Written says that it was replaced.
	Replaced uint64 `json:"found,omitempty"`
	Value    uint64 `json:"ours"`
	Written  bool   `json:"written,omitempty"`
	// Foreign: another program has changed it since. It is not touched until no limit is
	// wanted any more.
	Foreign bool `json:"foreign,omitempty"`
}

func (l Limit) pending() bool { return !l.Written && !l.Foreign }

// InForce tells whether the value in force is the agent's own: the newest one, or that which
// it replaces.
func (l Limit) InForce() bool {
	return !l.Foreign && (l.Written && l.Value != l.Original || !l.Written && l.Replaced != l.Original)
}

// current is the value in force of one that is not Foreign.
func (l Limit) current() uint64 {
	if l.Written {
		return l.Value
	}
	return l.Replaced
}

// Restores tells whether the value before is being restored.
func (l Limit) Restores() bool { return l.Value == l.Original }

// ours tells whether the value in force is the agent's, and not what was there before.
func (l Limit) ours(now uint64) bool { return now != l.Original && l.replaceable(now) }

// replaceable says whether the value in force may be replaced.
func (l Limit) replaceable(now uint64) bool {
	return !l.Foreign && (now == l.Value || !l.Written && now == l.Replaced)
}

// Files are the kernel's cgroup files, or the CPU limits of containers in the API.
type Files interface {
	// Get returns the value in force, 0 for none. ErrGone: the cgroup or device does not
	// exist any more.
	Get(k Knob) (uint64, error)
	// Set writes a limit, or removes it with 0.
	Set(k Knob, limit uint64) error
	// Effective returns what Get would return after Set of so many bytes per second, cores, or
	// bytes.
	Effective(k Knob, per float64) (uint64, error)
}

// ErrGone says that a cgroup or device does not exist any more.
var ErrGone = errors.New("gone")

// Journal is the journal of the agent's own limits.
type Journal struct {
	Files Files
	// Save saves the limits before each write; if that fails, no further limit is written, and
	// values are only restored.
	Save func([]Limit) error
	// Limits, at most one of each knob.
	Limits []Limit
	// Timeout is how long a Set waits for Files; 0: as long as they take.
	Timeout time.Duration
	// Order reorders the limits before they are written; nil: they are written by knob.
	Order func([]Limit)
	// Restored are the knobs whose values before the last Set has written, and Left those whose
	// values it has left, because another program has changed them.
	Restored, Left []Knob
	// Unread are the wanted knobs for which the last Set could plan nothing, since Files failed.
	Unread []Knob

	saved   []Limit       // as they are saved; nil: no Set yet
	until   time.Time     // when the Set that runs stops waiting
	hanging map[Knob]hang // what hangs, by worker
}

// Set makes these limits the agent's own, and removes all its others. Numbers are bytes
// per second, cores, or bytes. What fails is retried by the next Set.
func (b *Journal) Set(want map[Knob]float64) error {
	b.until, b.Restored, b.Left, b.Unread = time.Now().Add(b.Timeout), nil, nil, nil
	if b.saved == nil {
		b.saved = append([]Limit{}, b.Limits...)
	}
	restored, errs := b.planRestore(want)
	planned := map[Knob]bool{}
	for _, k := range slices.SortedFunc(maps.Keys(want), Knob.compare) {
		failed := b.ignoreGone(k, func() error { return b.plan(k, want[k]) })
		errs, planned[k] = append(errs, failed...), failed == nil
		if failed != nil {
			b.Unread = append(b.Unread, k)
		}
	}
	err := b.save()
	if err != nil {
		errs = append(errs, fmt.Errorf("save limits, no pod is throttled further: %w", err))
	}
	if !slices.ContainsFunc(b.Limits, Limit.pending) {
		return errors.Join(errs...)
	}
	list := slices.SortedFunc(slices.Values(b.Limits), func(l, o Limit) int { return l.Knob.compare(o.Knob) })
	if b.Order != nil {
		b.Order(list)
	}
	for _, l := range list {
		if l.pending() && (restored[l.Knob] || planned[l.Knob] && err == nil) { // what is restored need not be saved before
			errs = append(errs, b.ignoreGone(l.Knob, func() error { return b.write(l) })...)
		}
	}
	return errors.Join(append(errs, b.save())...)
}

// save the limits, if they are not those that were saved last.
func (b *Journal) save() error {
	if slices.Equal(b.saved, b.Limits) {
		return nil
	}
	if err := b.Save(b.Limits); err != nil {
		return err
	}
	b.saved = append([]Limit{}, b.Limits...)
	return nil
}

// Forget makes the next Set save the limits, whatever was saved: it was lost.
func (b *Journal) Forget() { b.saved = []Limit{} }

// Planned tells whether a limit is no more than that: it could not be saved, so it was not written.
func (b *Journal) Planned(l Limit) bool {
	return b.saved != nil && l.pending() && !l.InForce() && !slices.Contains(b.saved, l)
}

// ignoreGone runs do, and drops a knob whose cgroup or device does not exist any more.
func (b *Journal) ignoreGone(k Knob, do func() error) []error {
	switch err := do(); {
	case errors.Is(err, ErrGone):
		b.drop(k)
	case err != nil:
		return []error{fmt.Errorf("limit %s: %w", k, err)}
	}
	return nil
}

func (b *Journal) at(k Knob) int {
	return slices.IndexFunc(b.Limits, func(l Limit) bool { return l.Knob == k })
}

func (b *Journal) drop(k Knob) {
	b.Limits = slices.DeleteFunc(b.Limits, func(l Limit) bool { return l.Knob == k })
}

// planRestore records what is to be restored: the values before, where the agent's own are
// still in force. It is saved first, like every write: an agent that is killed in between
// would leave a value to the next one that looks like another program's.
func (b *Journal) planRestore(want map[Knob]float64) (planned map[Knob]bool, errs []error) {
	planned = map[Knob]bool{}
	for _, l := range slices.Clone(b.Limits) {
		if _, wanted := want[l.Knob]; wanted {
			continue
		}
		errs = append(errs, b.ignoreGone(l.Knob, func() error {
			now, err := b.get(l.Knob)
			switch {
			case err != nil:
				return err
			case l.ours(now):
				l.Replaced, l.Value, l.Written = now, l.Original, false
				b.Limits[b.at(l.Knob)], planned[l.Knob] = l, true
				return nil
			case now != l.Original:
				b.Left = append(b.Left, l.Knob)
			}
			b.drop(l.Knob)
			return nil
		})...)
	}
	return planned, errs
}

// plan records what is to be written for a knob, if anything.
func (b *Journal) plan(k Knob, per float64) error {
	want, err := b.call(k, func() (uint64, error) { return b.Files.Effective(k, per) })
	if err != nil {
		return err
	}
	now, err := b.get(k)
	if err != nil {
		return err
	}
	i := b.at(k)
	if i < 0 {
		if now == 0 || want < now { // else an existing limit is tighter
			b.Limits = append(b.Limits, Limit{Knob: k, Original: now, Replaced: now, Value: want})
		}
		return nil
	}
	l := &b.Limits[i]
	if k.Name == Memory && !l.Restores() && l.ours(now) && uint64(per) <= l.Value { // what it holds now it was allowed to take
		want = l.Value
	}
	if l.Original != 0 {
		want = min(want, l.Original)
	}
	switch {
	case !l.replaceable(now):
		l.Foreign = true
	case want != l.Value:
		l.Replaced, l.Value, l.Written = now, want, false
	default:
		l.Written = now == want
	}
	return nil
}

// write a value. A limit whose value before is restored is the agent's no longer.
func (b *Journal) write(l Limit) error {
	if _, err := b.call(l.Knob, func() (uint64, error) { return 0, b.Files.Set(l.Knob, l.Value) }); err != nil {
		return err
	}
	if l.Restores() {
		b.drop(l.Knob)
		b.Restored = append(b.Restored, l.Knob)
		return nil
	}
	b.Limits[b.at(l.Knob)].Written = true
	return nil
}
