package backup

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// The month of a cluster whose Backups have objectives, made up from a seed: see the head of
// its document. The first days only teach durations, and are not counted.
const (
	taughtDays  = 10
	countedDays = 31
	seeds       = 20
	slots       = 4
)

// Classes of these Backups, as the table names them.
const (
	dueHourly  = "every hour, RPO 3h"
	dueNightly = "every night, window 22:00-06:00"
	dueLarge   = "every night, large, RPO 40h"
	dueWeekly  = "each Saturday, the whole cluster"
	dueManual  = "by hand"
)

// due is a Backup of the month, what is wanted of it, and what became of it.
type dueJob struct {
	Backup
	class   string
	want    objective.Objective
	takes   time.Duration // under no pressure, until it ends or fails
	median  time.Duration // of what Backups like it take, under no pressure
	good    bool
	counted bool

	ends     time.Time // zero: it has not begun
	estimate durations.Estimate
	missed   bool
	// said: the last forecast, made an hour before its deadline or more, has it late; knows:
	// so has the one that knows each median.
	said, knows bool
	// foreseen is the interval in which it was to end by the forecast at 23:00.
	foreseen [2]time.Time
}

// dueMonth is a month by its seed: its Backups in the order in which they come, and the
// times at which nodes are under pressure.
type dueMonth struct {
	random   *rand.Rand
	night    objective.Window
	berlin   *time.Location
	jobs     []*dueJob
	pressure [][2]time.Time
}

func newDueMonth(t *testing.T, seed uint64) *dueMonth {
	t.Helper()
	night, err := objective.ParseWindow("22:00-06:00 Europe/Berlin")
	require.NoError(t, err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	m := &dueMonth{random: rand.New(rand.NewPCG(seed, 26)), night: night, berlin: berlin}
	m.schedules()
	slices.SortStableFunc(m.jobs, func(a, b *dueJob) int { return a.Created.Compare(b.Created) })
	for i, j := range m.jobs {
		j.UID = fmt.Sprintf("%05d", i)
		j.Name = j.UID
	}
	return m
}

// at is a time of a day by the clocks of Berlin.
func (m *dueMonth) at(day, minute int) time.Time {
	return time.Date(2026, 3, 1-taughtDays+day, 0, minute, 0, 0, m.berlin).UTC()
}

const dueDays = taughtDays + countedDays

func (m *dueMonth) schedules() {
	for app := range 6 {
		for hour := range dueDays * 24 {
			m.add(dueHourly, m.at(0, 0).Add(time.Duration(hour)*time.Hour), app, 4, 0.3, hour == 0, objective.Objective{RPO: 3 * time.Hour})
		}
	}
	for app := 6; app < 46; app++ {
		want := objective.Objective{Window: m.night}
		if app%2 == 0 {
			want.RPO = 30 * time.Hour
		}
		m.nightly(dueNightly, app, 22*60, 8*math.Exp(m.random.Float64()*1.7), want) // 8 to 44 min
	}
	for app := 46; app < 54; app++ {
		m.nightly(dueLarge, app, 21*60+30, 60+90*m.random.Float64(), objective.Objective{RPO: 40 * time.Hour})
	}
	for day := range dueDays {
		m.day(day)
	}
}

// nightly is a Schedule whose Backups grow, the first of which is a full one.
func (m *dueMonth) nightly(class string, app, minute int, minutes float64, want objective.Objective) {
	for day := range dueDays {
		m.add(class, m.at(day, minute), app, minutes*math.Pow(1.004, float64(day)), 0.2, day == 0, want)
	}
}

// day has what people ask for, the whole cluster on Saturdays, and pressure in some nights.
func (m *dueMonth) day(day int) {
	if m.at(day, 12*60).Weekday() == time.Saturday {
		m.add(dueWeekly, m.at(day, 12*60), -1, 100, 0.1, false, objective.Objective{})
	}
	for range 12 {
		m.add(dueManual, m.at(day, 8*60+m.random.IntN(600)), m.random.IntN(60), 5+25*m.random.Float64(), 0, false, objective.Objective{})
	}
	if m.random.IntN(4) == 0 {
		from := m.at(day, 20*60+m.random.IntN(480))
		m.pressure = append(m.pressure, [2]time.Time{from, from.Add(time.Duration(60+m.random.IntN(240)) * time.Minute)})
	}
}

// add a Backup of an app (-1: of all) that takes about so many minutes.
func (m *dueMonth) add(class string, at time.Time, app int, minutes, spread float64, full bool, want objective.Objective) {
	median := minutes
	if full {
		median *= 4
	}
	minutes *= math.Exp(spread * m.random.NormFloat64())
	if m.random.IntN(40) == 0 {
		minutes *= 3 // much has changed
	}
	if full {
		minutes *= 4
	}
	good := m.random.IntN(33) > 0
	if !good {
		minutes *= m.random.Float64()
	}
	b := Backup{Phase: Queued, Created: at}
	if app >= 0 {
		b.Include = []string{appName(app)}
	}
	if class != dueManual {
		b.Schedule = fmt.Sprintf("%s, %d", class, app)
	}
	m.jobs = append(m.jobs, &dueJob{
		Backup: b, class: class, want: want, good: good, counted: !at.Before(m.at(taughtDays, 0)),
		takes: time.Duration(max(minutes, 0.5) * float64(time.Minute)).Round(time.Second), median: time.Duration(median * float64(time.Minute)),
	})
}

// runs is how long a Backup runs that begins at a time and takes so long under no pressure.
func (m *dueMonth) runs(takes time.Duration, at time.Time) time.Duration {
	for _, p := range m.pressure {
		if !at.Before(p[0]) && at.Before(p[1]) {
			return takes * 3 / 2
		}
	}
	return takes
}

// dueManner is a way to run the month.
type dueManner struct {
	name string
	Config
	deadlines, clairvoyant bool
	// learns: durations are known as they are learned, to order by or for forecasts alone.
	learns   bool
	priority map[string]int32
}

const (
	mannerFIFO = iota
	mannerPriorities
	mannerEDF
	mannerOurs
	mannerClairvoyant
)

func dueManners() []dueManner {
	c := Config{Limit: slots, Aging: 24 * time.Hour}
	p := c
	p.Priorities = true
	return []dueManner{
		mannerFIFO:        {name: "first in, first out, as Velero does", Config: c, learns: true},
		mannerPriorities:  {name: "`priorities`: hourly 2, nightly 1", Config: p, priority: map[string]int32{dueHourly: 2, dueNightly: 1}},
		mannerEDF:         {name: "earliest deadline first, no durations", Config: c, deadlines: true},
		mannerOurs:        {name: "deadlines and learned durations", Config: c, deadlines: true, learns: true},
		mannerClairvoyant: {name: "the same, clairvoyant", Config: c, deadlines: true, clairvoyant: true},
	}
}

// shift plays a month in a manner, event by event.
type shift struct {
	dueManner
	*dueMonth
	in      Input
	jobs    map[string]*dueJob
	newest  map[string]time.Time // start of the newest good one, by Schedule
	history durations.History
	pace    float64
	// newestVersion of an object, as the API server counts.
	newestVersion uint64
	// forecasts are made each hour; forecast is when the last was.
	forecasts bool
	forecast  time.Time
}

func newShift(manner dueManner, m *dueMonth) *shift {
	names := make([]string, apps)
	for i := range names {
		names[i] = appName(i)
	}
	return &shift{
		dueManner: manner, dueMonth: m, jobs: map[string]*dueJob{}, newest: map[string]time.Time{},
		in: Input{Config: manner.Config, Namespaces: NewNamespaces(names)},
	}
}

func (s *shift) play() {
	coming := s.dueMonth.jobs
	for len(coming) > 0 || len(s.in.Backups) > 0 {
		s.in.Time = s.next(coming)
		s.end()
		for ; len(coming) > 0 && !coming[0].Created.After(s.in.Time); coming = coming[1:] {
			j := coming[0]
			s.jobs[j.UID] = j
			s.newestVersion++
			j.Version, j.Turn = s.newestVersion, Turn{Version: s.newestVersion}
			j.Priority = s.priority[j.class]
			s.in.Backups = append(s.in.Backups, j.Backup)
		}
		s.learn()
		s.decide()
		if s.forecasts && s.in.Time.Sub(s.forecast) >= time.Hour && !s.in.Time.Before(s.at(taughtDays-1, 0)) {
			s.forecast = s.in.Time
			s.foresee(coming)
		}
	}
}

// next is when something happens: one comes, ends, or its window opens.
func (s *shift) next(coming []*dueJob) time.Time {
	var at time.Time
	if len(coming) > 0 {
		at = coming[0].Created
	}
	for i := range s.in.Backups {
		b := &s.in.Backups[i]
		then := b.Due.Opens
		if b.running() {
			then = s.jobs[b.UID].ends
		}
		if then.After(s.in.Time) && (at.IsZero() || then.Before(at)) {
			at = then
		}
	}
	if !at.After(s.in.Time) && len(coming) == 0 {
		panic("nothing happens any more")
	}
	return at
}

func (s *shift) end() {
	s.in.Backups = slices.DeleteFunc(s.in.Backups, func(b Backup) bool {
		j := s.jobs[b.UID]
		if !b.running() || j.ends.After(s.in.Time) {
			return false
		}
		deadline := s.due(j).Deadline
		j.missed = !deadline.IsZero() && j.ends.After(deadline)
		j.Began = b.Began
		s.history.Add(durations.Run{Schedule: b.Schedule, Started: b.Began, Completed: j.ends, Good: j.good})
		if j.good && b.Schedule != "" {
			s.newest[b.Schedule] = b.Began
		}
		return true
	})
}

// due by what is known now.
func (s *shift) due(j *dueJob) objective.Due {
	return j.want.Due(objective.DefaultBounds(), j.Created, s.newest[j.Schedule])
}

// learn gives the Backups that wait what the manner knows of them.
func (s *shift) learn() {
	s.pace = s.history.Pace(s.in.Time)
	for i := range s.in.Backups {
		b := &s.in.Backups[i]
		j := s.jobs[b.UID]
		if b.running() {
			continue
		}
		if s.deadlines {
			b.Due = s.due(j)
		}
		switch {
		case s.clairvoyant:
			runs := s.runs(j.takes, s.in.Time)
			b.Takes = durations.Estimate{Low: runs, Mid: runs, High: runs}
		case s.learns:
			b.Takes = s.learned(j)
		}
	}
}

// learned is how long a Backup takes, as far as it is learned.
func (s *shift) learned(j *dueJob) durations.Estimate {
	return s.history.Next(j.Schedule, durations.Unknown, 0, later(s.in.Time, j.Created)).Scaled(s.pace)
}

// horizon of the forecasts.
const horizon = 10 * time.Hour

// foresee plays the night forward with medians. What people will ask for is not known, the
// Backups of Schedules are.
func (s *shift) foresee(later []*dueJob) {
	until := s.in.Time.Add(horizon)
	coming := s.coming(later, until)
	dues := func(b *Backup, _, newest time.Time) (due objective.Due, _ time.Time) {
		return s.jobs[b.UID].want.Due(objective.DefaultBounds(), b.Created, newest), time.Time{}
	}
	if s.deadlines && s.in.Time.In(s.berlin).Hour() == 23 {
		s.foreseeEnds(Forecast(s.in, coming, nil, dues, until))
	}
	p := &premises{in: s.in, coming: coming, dues: dues, until: until}
	s.say(p, func(j *dueJob, late bool) { j.said = late })
	p.in.Backups, p.coming = s.known(p.in.Backups), s.known(coming)
	s.say(p, func(j *dueJob, late bool) { j.knows = late })
}

// say what will be late of what is due more than an hour from now.
func (s *shift) say(p *premises, say func(j *dueJob, late bool)) {
	for _, f := range p.play(middle).runs {
		j := s.jobs[f.UID]
		d := f.due.Deadline
		if f.due == (objective.Due{}) { // the order knows no deadlines, and no other ended before
			d = s.due(j).Deadline
		}
		if d.After(s.in.Time.Add(time.Hour)) && d.Before(p.until) {
			say(j, f.ends.IsZero() || f.ends.After(d))
		}
	}
}

// known are Backups with the true median of what each takes, and of those that wait under the
// pressure of this moment.
func (s *shift) known(list []Backup) []Backup {
	list = slices.Clone(list)
	for i := range list {
		if b := &list[i]; b.Takes.Known() {
			at := s.in.Time
			if b.running() {
				at = b.Began
			}
			b.Takes.Mid = s.runs(s.jobs[b.UID].median, at)
		}
	}
	return list
}

// coming are the Backups of Schedules until a time.
func (s *shift) coming(later []*dueJob, until time.Time) (list []Backup) {
	for _, j := range later {
		if j.Created.After(until) {
			break
		}
		if j.class == dueManual {
			continue
		}
		b := j.Backup
		if s.deadlines {
			b.Due = s.due(j)
		}
		b.Takes = s.learned(j)
		s.jobs[b.UID] = j
		list = append(list, b)
	}
	return list
}

func (s *shift) foreseeEnds(outlooks []Outlook) {
	for _, o := range outlooks {
		if o.Why == "" && !o.Ends.IsZero() {
			s.jobs[o.UID].foreseen = [2]time.Time{o.Earliest, o.Latest}
		}
	}
}

func (s *shift) decide() {
	for i, wrote := 0, true; wrote; i++ {
		if wrote = false; i == settles {
			panic("it writes for ever")
		}
		d := Decide(s.in)
		for _, e := range d.Queue {
			switch {
			case e.Start:
				j := s.jobs[e.UID]
				e.Phase, e.Began, e.Position = InProgress, s.in.Time, 0
				j.ends = s.in.Time.Add(s.runs(j.takes, s.in.Time))
				j.estimate = e.Takes
			case e.Turn != e.WriteTurn:
				s.newestVersion++
				e.Turn, e.Version, wrote = e.WriteTurn, s.newestVersion, true
			}
		}
	}
}

// tally of a month by one manner.
type tally struct {
	due, missed map[string]int
	known, in   int // durations that had an interval, and those that were in it
	// Ends that were forecast at 23:00, and those that came within the interval.
	foreseen, within int
	scheduled        int // good Backups of Schedules
	said, right      int // misses that were said an hour ahead, and those of them that came
	knew, knewRight  int // the same where each median is known
	longest          time.Duration
}

func (s *shift) tally() tally {
	t := tally{due: map[string]int{}, missed: map[string]int{}}
	for _, j := range s.dueMonth.jobs {
		if !j.counted {
			continue
		}
		t.longest = max(t.longest, j.Began.Sub(j.Created))
		t.deadline(j)
		if j.good {
			t.durations(j)
		}
	}
	return t
}

// deadline counts whether it was missed, and said to be.
func (t *tally) deadline(j *dueJob) {
	if j.want == (objective.Objective{}) {
		return
	}
	t.due[j.class]++
	if j.missed {
		t.missed[j.class]++
	}
	if j.said {
		t.said++
	}
	if j.said && j.missed {
		t.right++
	}
	if j.knows {
		t.knew++
	}
	if j.knows && j.missed {
		t.knewRight++
	}
}

// durations counts the intervals of one that did not fail.
func (t *tally) durations(j *dueJob) {
	if j.Schedule != "" {
		t.scheduled++
	}
	if j.estimate.Known() {
		t.known++
		if took := j.ends.Sub(j.Began); took >= j.estimate.Low && took <= j.estimate.High {
			t.in++
		}
	}
	if !j.foreseen[1].IsZero() {
		t.foreseen++
		if !j.ends.Before(j.foreseen[0]) && !j.ends.After(j.foreseen[1]) {
			t.within++
		}
	}
}

func sum(of map[string]int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}

// playSeeds plays the months of seeds from 1, in some manners: by seed, then by manner as
// they are numbered.
func playSeeds(t *testing.T, n int, forecasts bool, manners ...int) [][]tally {
	t.Helper()
	all := make([][]tally, n)
	processors := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for seed := range n {
		all[seed] = make([]tally, len(dueManners()))
		for _, i := range manners {
			s := newShift(dueManners()[i], newDueMonth(t, uint64(seed+1)))
			s.forecasts = forecasts && s.learns
			wait.Go(func() {
				processors <- struct{}{}
				s.play()
				all[seed][i] = s.tally()
				<-processors
			})
		}
	}
	wait.Wait()
	return all
}

// The first month is played in our manner each time, all of them in all manners in the long
// form, which also compares the page.
func TestDeadlinesMonth(t *testing.T) {
	if !*update && !live.IsLong() {
		ours := playSeeds(t, 1, false, mannerOurs)[0][mannerOurs]
		asWeighed(t, ours, mannerOurs)
		page, err := os.ReadFile(deadlinesPage)
		require.NoError(t, err)
		row := strings.Split(regexp.MustCompile(`(?m)^\| 1 \|.*`).FindString(string(page)), " | ")
		require.Len(t, row, 1+len(dueManners()))
		assert.Equal(t, row[1+mannerOurs], strconv.Itoa(sum(ours.missed)))
		return
	}
	all := playSeeds(t, seeds, true, mannerFIFO, mannerPriorities, mannerEDF, mannerOurs, mannerClairvoyant)
	for _, tallies := range all {
		for i, y := range tallies {
			asWeighed(t, y, i)
		}
	}
	total := totals(all)
	assert.LessOrEqual(t, 10*sum(total[mannerOurs].missed), sum(total[mannerFIFO].missed))
	assert.InDelta(t, 90, percent(total[mannerOurs].in, total[mannerOurs].known), 5)
	document(t, deadlinesPage, deadlinesText(all, total))
	document(t, "../docs/img/backups-deadlines.svg", deadlinesPlot(all))
}

// asWeighed: each deadline counts, and none waits for a day.
func asWeighed(t *testing.T, y tally, manner int) {
	t.Helper()
	require.Equal(t, 5952, sum(y.due))
	require.Less(t, y.longest, 24*time.Hour, dueManners()[manner].name)
}
