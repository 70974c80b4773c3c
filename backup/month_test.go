package backup

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The month of a busy cluster, made up and the same each time: sixty
// applications, of which some are backed up every hour and half of them every
// night, the whole cluster each Sunday, and what people ask for by day.
const (
	days        = 30
	apps        = 60
	hourly      = 6
	clusterWide = 5 * time.Hour
)

// Classes of the month's Backups, as the table names them.
const (
	classHourly  = "every hour, one application"
	classNightly = "every night, one application"
	classWeekly  = "each Sunday, the whole cluster"
	classManual  = "by hand"
	classUrgent  = "by hand, priority 10"
)

func classes() []string {
	return []string{classHourly, classNightly, classWeekly, classManual, classUrgent}
}

// job is a Backup of the month, how long Velero takes for it, and what became
// of it.
type job struct {
	Backup
	class string
	takes time.Duration
	began time.Time // zero: it waits
	// seen and aged by the queue.
	seen, aged bool
	// atMost is the work that was ahead of it when it came, or when it had aged.
	atMost time.Duration
}

// most is how long it may wait as it is stated: one that is behind may have the
// slot, and until it has aged others may go first.
func (j *job) most(c Config) time.Duration {
	most := j.atMost + clusterWide
	if c.Priorities {
		most = max(most, c.Aging)
	}
	return most
}

func (j *job) wait() time.Duration { return j.began.Sub(j.Created) }

// month is its Backups, in the order in which they come.
func month() []*job {
	random := rand.New(rand.NewPCG(7, 42))
	minutes := func(least, most int) time.Duration {
		return time.Duration(least+random.IntN(most-least+1)) * time.Minute
	}
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC) // a Sunday
	var list []*job
	add := func(class string, at time.Time, takes time.Duration, priority int32, schedule string, include ...string) {
		uid := fmt.Sprintf("%05d", len(list))
		list = append(list, &job{class: class, takes: takes, Backup: Backup{
			UID: uid, Name: uid, Phase: New, Created: at, Include: include, Priority: priority, Schedule: schedule,
		}})
	}
	for day := range days {
		midnight := start.AddDate(0, 0, day)
		for hour := range 24 {
			for app := range hourly {
				add(classHourly, midnight.Add(time.Duration(hour)*time.Hour), minutes(2, 6), 0, "hourly", appName(app))
			}
		}
		for app := range apps / 2 {
			add(classNightly, midnight.Add(time.Hour+time.Duration(app%4)*15*time.Minute), minutes(5, 25), 0, "nightly", appName(2*app))
		}
		if midnight.Weekday() == time.Sunday {
			add(classWeekly, midnight.Add(6*time.Hour), clusterWide, 0, "weekly")
		}
		for i := range 12 {
			class, priority := classManual, int32(0)
			if i%4 == 0 {
				class, priority = classUrgent, 10
			}
			add(class, midnight.Add(8*time.Hour+minutes(0, 600)), minutes(5, 30), priority, "", appName(random.IntN(apps)))
		}
	}
	slices.SortStableFunc(list, func(a, b *job) int { return a.Created.Compare(b.Created) })
	return list
}

func appName(i int) string { return fmt.Sprintf("app-%02d", i) }

// calendar plays jobs through the queue, event by event.
type calendar struct {
	in   Input
	jobs map[string]*job
	now  time.Time
}

func play(c Config, list []*job) {
	names := make([]string, apps)
	for i := range names {
		names[i] = appName(i)
	}
	k := &calendar{in: Input{Config: c, Namespaces: NewNamespaces(names)}, jobs: map[string]*job{}}
	for next := 0; next < len(list) || len(k.in.Backups) > 0; {
		before := k.now
		if k.now = k.next(list[next:]); !k.now.After(before) {
			panic("nothing happens any more")
		}
		k.end()
		for ; next < len(list) && !list[next].Created.After(k.now); next++ {
			list[next].Version = uint64(next + 1)
			k.jobs[list[next].UID] = list[next]
			k.in.Backups = append(k.in.Backups, list[next].Backup)
		}
		k.decide()
	}
}

// next is when something happens: one comes, ends, or has aged.
func (k *calendar) next(coming []*job) time.Time {
	var at time.Time
	if len(coming) > 0 {
		at = coming[0].Created
	}
	for _, b := range k.in.Backups {
		j := k.jobs[b.UID]
		then := j.began.Add(j.takes)
		if j.began.IsZero() {
			if j.aged || !k.in.Config.Priorities {
				continue
			}
			then = j.Created.Add(k.in.Config.Aging)
		}
		if at.IsZero() || then.Before(at) {
			at = then
		}
	}
	return at
}

func (k *calendar) end() {
	k.in.Backups = slices.DeleteFunc(k.in.Backups, func(b Backup) bool {
		j := k.jobs[b.UID]
		return !j.began.IsZero() && !j.began.Add(j.takes).After(k.now)
	})
}

// decide until nothing is left to write.
func (k *calendar) decide() {
	k.in.Time = k.now
	for i, wrote := 0, true; wrote; i++ {
		if wrote = false; i == settles {
			panic("it writes for ever")
		}
		d := Decide(k.in)
		ahead := k.running()
		for _, e := range d.Queue {
			k.bound(e.UID, ahead)
			ahead += k.jobs[e.UID].takes
			wrote = k.write(e) || wrote
		}
	}
}

// bound keeps what was ahead of a Backup when it came, and when it aged.
func (k *calendar) bound(uid string, ahead time.Duration) {
	j := k.jobs[uid]
	aged := k.in.Config.Priorities && k.in.aged(&j.Backup)
	if j.seen && (!aged || j.aged) {
		return
	}
	j.seen, j.aged, j.atMost = true, aged, ahead
	if aged {
		j.atMost += k.in.Config.Aging
	}
}

// write is what the reconciler does, and Velero.
func (k *calendar) write(e Entry) (wrote bool) {
	b := k.find(e.UID)
	switch {
	case e.Start:
		b.Phase, b.Position, k.jobs[e.UID].began = InProgress, 0, k.now
	case b.Phase != Queued || b.Position != e.WritePosition || b.Turn != e.WriteTurn:
		b.Phase, b.Position, b.Turn = Queued, e.WritePosition, e.WriteTurn
	default:
		return false
	}
	return true
}

// running is the work that is left of those who run.
func (k *calendar) running() (left time.Duration) {
	for _, b := range k.in.Backups {
		if j := k.jobs[b.UID]; !j.began.IsZero() {
			left += j.began.Add(j.takes).Sub(k.now)
		}
	}
	return left
}

func (k *calendar) find(uid string) *Backup {
	return &k.in.Backups[slices.IndexFunc(k.in.Backups, func(b Backup) bool { return b.UID == uid })]
}

// manner is a way to run the month.
type manner struct {
	name string
	Config
}

func manners() []manner {
	return []manner{
		{"one at a time, as Velero does by itself", Config{Limit: 1}},
		{"limit 4", Config{Limit: 4}},
		{"limit 4, `priorities`, `manualFirst`, `aging: 6h`", Config{Limit: 4, Priorities: true, ManualFirst: true, Aging: 6 * time.Hour}},
	}
}

func TestBusyMonthWaitBound(t *testing.T) {
	var text strings.Builder
	text.WriteString(monthHead)
	var lines []curve
	for i, m := range manners() {
		list := month()
		play(m.Config, list)
		fmt.Fprintf(&text, "\n**%s**\n\n| Backups | how many | half wait at most | 95 %% | longest | of what is stated |\n|---|--:|--:|--:|--:|--:|\n", m.name)
		for _, class := range classes() {
			of := slices.DeleteFunc(slices.Clone(list), func(j *job) bool { return j.class != class })
			require.NotEmpty(t, of)
			slices.SortFunc(of, func(a, b *job) int { return cmp.Compare(a.wait(), b.wait()) })
			used := 0.0
			for _, j := range of {
				require.False(t, j.began.IsZero(), "%s never began: %s", j.Name, m.name)
				most := j.most(m.Config)
				require.LessOrEqual(t, j.wait(), most, "%s of %s: %s", j.Name, j.Created, m.name)
				used = max(used, j.wait().Seconds()/most.Seconds())
			}
			fmt.Fprintf(&text, "| %s | %d | %s | %s | %s | %.0f %% |\n", class, len(of), at(of, 50), at(of, 95), at(of, 100), 100*used)
			if class == classHourly || class == classUrgent {
				lines = append(lines, curveOf(fmt.Sprintf("%s: %s", m.name, class), i, class == classUrgent, of))
			}
		}
		assert.Len(t, list, days*(24*hourly+apps/2+12)+5)
	}
	document(t, "../docs/backups-month.md", text.String())
	document(t, "../docs/img/backups-month.svg", plotOf(lines))
}

// at is how long a share of a sorted class waited at most.
func at(of []*job, percent int) string {
	return of[(len(of)-1)*percent/100].wait().Round(time.Minute).String()
}
