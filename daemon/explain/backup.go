package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// ErrNoBackup means that no Backup has the name.
var ErrNoBackup = errors.New("no such backup")

// Backup is the state of one Backup and its place in the queue.
type Backup struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Phase     backup.Phase `json:"phase"`
	Created   time.Time    `json:"created"`
	// Waiting is the controller's annotation; nil: it has none.
	Waiting *backup.Waiting `json:"waiting,omitempty"`
	// AnnotationError is what is wrong with its annotations.
	AnnotationError string `json:"odd,omitempty"`
	// Refused is the Event that says why the API server refuses to change it; nil: none is
	// known. RefusedUnknown is why Events are not known.
	Refused        *Event `json:"refused,omitempty"`
	RefusedUnknown string `json:"refusedUnknown,omitempty"`
	// Place in the queue; nil: it does not wait.
	Place *backup.QueuedBackup `json:"place,omitempty"`
	// Wanted of it; nil: deadlines are not enabled, or it has ended.
	Wanted *Wanted `json:"wanted,omitempty"`
	// Queue of its Velero.
	Queue backup.Report `json:"queue"`
	// Disabled: the configuration starts no Backup (backup.Settings).
	Disabled bool `json:"disabled,omitempty"`
	// NotStarted are the Backups that start now, and should have before.
	NotStarted []string `json:"notStarted,omitempty"`
}

// Wanted is what is wanted of a Backup.
type Wanted struct {
	// RPOSeconds is how old the newest good Backup may become; 0: any age.
	RPOSeconds float64 `json:"rpoSeconds,omitempty"`
	Window     string  `json:"window,omitempty"`
	Priority   int32   `json:"priority,omitempty"`
	// Opens is when its window opens, and Deadline by when it is to be complete; absent: no
	// window that is not open yet, no deadline.
	Opens time.Time `json:"opens,omitzero"`
	// First: what opens is the window of first Backups.
	First    bool      `json:"first,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`
	// It is expected to take UsualSeconds, from LeastSeconds to LongestSeconds with a
	// probability of 90 %; absent: Unknown says why.
	UsualSeconds   float64 `json:"usualSeconds,omitempty"`
	LeastSeconds   float64 `json:"leastSeconds,omitempty"`
	LongestSeconds float64 `json:"longestSeconds,omitempty"`
	Unknown        string  `json:"unknown,omitempty"`
	// Problems are the annotations that are not followed.
	Problems []string `json:"problems,omitempty"`
}

// backupTimeout bounds all requests to the API server together.
const backupTimeout = 30 * time.Second

// Of are the objects that AskBackup reads, all of one Velero but the namespaces.
type Of struct {
	Backups, Schedules dynamic.ResourceInterface
	Namespaces         metadata.Getter
	Events             corev1client.EventsGetter
}

// AskBackup reads a Backup and decides about its queue as the controller with
// these settings would now. The error wraps ErrNoBackup if there is none.
func AskBackup(ctx context.Context, of Of, namespace, name string, s backup.Settings, now time.Time) (*Backup, error) {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	list, err := of.Backups.List(ctx, metav1.ListOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: the cluster has no Backup resource", ErrNoBackup)
		}
		return nil, fmt.Errorf("list backups: %w", err)
	}
	known, err := of.Namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	var names []string
	annotations := map[string]map[string]string{}
	for i := range known.Items {
		names = append(names, known.Items[i].Name)
		annotations[known.Items[i].Name] = known.Items[i].Annotations
	}
	var schedules []*backup.Schedule
	if s.Deadlines.Enabled {
		if schedules, err = readSchedules(ctx, of.Schedules); err != nil {
			return nil, err
		}
	}
	var objects []*backup.Object
	for i := range list.Items {
		objects = append(objects, backup.Read(&list.Items[i]))
	}
	at := slices.IndexFunc(objects, func(o *backup.Object) bool { return o.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("%s/%s: %w", namespace, name, ErrNoBackup)
	}
	in := backup.Input{Time: now, Config: s.Config, Namespaces: backup.NewNamespaces(names), Backups: backup.Backups(objects)}
	refused := readRefusals(ctx, of.Events, namespace, s.Resync)
	refused.held.Mark(&in)
	aims := backup.WithDeadlines(&in, s.Deadlines, objects, schedules, annotations)
	b := backupOf(objects[at], backup.NewReport(namespace, in, backup.Decide(in)))
	b.NotStarted = notStarted(b.Queue.Waiting, objects, s.Resync, now)
	if i := slices.IndexFunc(in.Backups, func(b backup.Backup) bool { return b.Name == name }); i >= 0 {
		refused.add(b, &in.Backups[i])
		if a, followed := aims[in.Backups[i].UID]; followed {
			b.Wanted = wantedOf(a, &in.Backups[i])
			b.AnnotationError = "" // one of Problems
		}
	}
	return b, nil
}

// startsWithin is how long it takes at most until a Backup that may start is started, beside the
// time between two rounds of the controller.
const startsWithin = time.Minute

// notStarted are the Backups of a queue that start now, and should have before. They could since they
// were created, their window opened, or the reason that is written of them began, the latest of these.
func notStarted(queue []backup.QueuedBackup, objects []*backup.Object, resync time.Duration, now time.Time) (list []string) {
	wrote := map[string]time.Time{}
	for _, o := range objects {
		wrote[o.Name] = o.Waiting.Since
	}
	for _, p := range queue {
		could := slices.MaxFunc([]time.Time{p.Created, p.Opens, wrote[p.Name]}, time.Time.Compare)
		if p.Reason == backup.CodeStarts && now.Sub(could) > startsWithin+resync {
			list = append(list, p.Name)
		}
	}
	return list
}

func readSchedules(ctx context.Context, from dynamic.ResourceInterface) ([]*backup.Schedule, error) {
	list, err := from.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	var schedules []*backup.Schedule
	for i := range list.Items {
		schedules = append(schedules, backup.ReadSchedule(&list.Items[i]))
	}
	return schedules, nil
}

func wantedOf(a backup.Aim, b *backup.Backup) *Wanted {
	w := &Wanted{
		RPOSeconds: a.RPO.Seconds(), Priority: a.Priority, Opens: b.Due.Opens, First: b.Due.First, Deadline: b.Due.Deadline,
		UsualSeconds: b.Takes.Mid.Seconds(), LeastSeconds: b.Takes.Low.Seconds(), LongestSeconds: b.Takes.High.Seconds(), Unknown: b.Takes.Why,
	}
	if a.Window.Set() {
		w.Window = a.Window.String()
	}
	for _, p := range a.Problems {
		w.Problems = append(w.Problems, string(p.Kind)+" "+p.Name+": "+p.Text)
	}
	return w
}

func backupOf(o *backup.Object, queue backup.Report) *Backup {
	b := &Backup{Namespace: o.Namespace, Name: o.Name, Phase: o.Backup.Phase, Created: o.Backup.Created, Queue: queue}
	if b.Phase == "" {
		b.Phase = backup.New
	}
	if o.Waiting.Reason != "" {
		b.Waiting = &o.Waiting
	}
	if o.AnnotationErr != nil {
		b.AnnotationError = o.AnnotationErr.Error()
	}
	if i := slices.IndexFunc(queue.Waiting, func(p backup.QueuedBackup) bool { return p.Name == o.Name }); i >= 0 {
		b.Place = &queue.Waiting[i]
	}
	return b
}

// WriteBackup writes where a Backup is in the queue and what is ahead of it.
func WriteBackup(w io.Writer, b *Backup, now time.Time) error {
	t := text{now: now}
	if b.Place == nil {
		t.line("%s/%s is %s: it does not wait in the queue.", b.Namespace, b.Name, b.Phase)
		if b.Phase == backup.Ready && b.Waiting != nil {
			t.line("It may start for %s now, and Velero has not started it yet.", age(now, b.Waiting.Since))
		}
		if b.Wanted != nil {
			b.Wanted.write(&t)
		}
		return t.writeTo(w)
	}
	p := b.Place
	where := fmt.Sprintf("at place %d of %d", p.Place, len(b.Queue.Waiting)-starting(b.Queue.Waiting))
	if p.Reason == backup.CodeStarts {
		where = "next"
	}
	t.line("%s/%s is %s, %s, for %s: %s.", b.Namespace, b.Name, b.Phase, where, age(now, b.Created), b.why(p))
	if b.Waiting != nil {
		t.line("The controller wrote: %s, for %s.", b.Waiting.Reason, age(now, b.Waiting.Since))
	}
	b.writeRefused(&t)
	if b.AnnotationError != "" {
		t.line("%s.", b.AnnotationError)
	}
	if b.Wanted != nil {
		b.Wanted.write(&t)
	}
	if slices.ContainsFunc(b.Queue.Waiting, func(p backup.QueuedBackup) bool { return !p.Deadline.IsZero() }) {
		t.line("Places where deadlines are tight depend on how long Backups take: the leader may have seen more of them, and its page has its own places.")
	}
	t.line("")
	t.line("%d of %d run in %s:", b.Queue.Running, b.Queue.Limit, b.Queue.Namespace)
	if err := t.writeTo(w); err != nil {
		return err
	}
	return writeQueue(w, b, now)
}

// why a Backup of its queue waits, or that it could start and does not.
func (b *Backup) why(p *backup.QueuedBackup) string {
	switch {
	case p.Reason != backup.CodeStarts:
		return p.Why()
	case b.Disabled:
		return "it could start, but this configuration starts no Backup (backups.enabled is false)"
	case slices.Contains(b.NotStarted, p.Name):
		return "it could start, and the controller has not started it: see `plimsoll doctor`"
	}
	return p.Why()
}

// write says what is wanted, by when, and how long it takes.
func (w *Wanted) write(t *text) {
	var list []string
	if w.RPOSeconds > 0 {
		list = append(list, "RPO "+problems.Duration(seconds(w.RPOSeconds)))
	}
	if w.Window != "" {
		list = append(list, "backup window "+w.Window)
	}
	if w.Priority != 0 {
		list = append(list, "priority "+strconv.Itoa(int(w.Priority)))
	}
	if len(list) == 0 {
		list = []string{"none, so it has no deadline"}
	}
	t.line("Objective: %s.", strings.Join(list, ", "))
	if !w.Opens.IsZero() {
		why := ""
		if w.First {
			why = ", when the window of first Backups opens: its schedule has no good Backup yet"
		}
		t.line("It may start at %s%s.", w.Opens.Format(time.RFC3339), why)
	}
	if !w.Deadline.IsZero() {
		t.line("It is to be complete by %s.", w.Deadline.Format(time.RFC3339))
	}
	if w.Unknown != "" {
		t.line("How long it takes is not known: %s.", w.Unknown)
	} else {
		t.line("It usually takes %s, and with a probability of 90 %% from %s to %s.", problems.Duration(seconds(w.UsualSeconds)), problems.Duration(seconds(w.LeastSeconds)), problems.Duration(seconds(w.LongestSeconds)))
	}
	for _, p := range w.Problems {
		t.line("%s.", p)
	}
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

// placesShown bounds the Backups ahead that are listed.
const placesShown = 20

func writeQueue(w io.Writer, b *Backup, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, a := range b.Queue.Active {
		fmt.Fprintf(table, "  -\t%s\t%s\t%s\n", a.Name, a.Phase, age(now, a.Created))
	}
	self := slices.IndexFunc(b.Queue.Waiting, func(p backup.QueuedBackup) bool { return p.Name == b.Name })
	ahead := b.Queue.Waiting[:self+1]
	skipped := max(0, len(ahead)-placesShown)
	for _, p := range ahead[skipped:] {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", placeText(p), p.Name, age(now, p.Created), b.why(&p))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if skipped > 0 {
		_, err := fmt.Fprintf(w, "  and %d more ahead of those\n", skipped)
		return err
	}
	return nil
}

// starting is how many Backups start now; they have no place.
func starting(list []backup.QueuedBackup) (n int) {
	for _, p := range list {
		if p.Reason == backup.CodeStarts {
			n++
		}
	}
	return n
}

func placeText(p backup.QueuedBackup) string {
	if p.Reason == backup.CodeStarts {
		return "-"
	}
	return strconv.Itoa(p.Place)
}

// age is the time since t, in seconds.
func age(now, t time.Time) string { return now.Sub(t).Round(time.Second).String() }
