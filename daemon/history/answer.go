package history

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Answer is /api/v1/history. All lists of numbers have a number for each step from
// From on, and null where there is none.
type Answer struct {
	Range       string    `json:"range"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds int       `json:"stepSeconds"`
	// Rules that were judged in the range.
	Rules []RuleAnswer      `json:"rules"`
	Node  map[string]Values `json:"node"`
	// Disks and NICs that have a value in the range.
	Disks []SeriesAnswer `json:"disks"`
	NICs  []SeriesAnswer `json:"nics"`
	// Workloads that the client asked for by name.
	Workloads []SeriesAnswer `json:"workloads,omitempty"`
	// Omitted is how many workloads and devices have no place in the newest step.
	Omitted int `json:"omitted,omitzero"`
}

// RuleAnswer is the course of the level of a plugin about a scope.
type RuleAnswer struct {
	Plugin   string `json:"plugin"`
	Scope    string `json:"scope"`
	Resource string `json:"resource,omitempty"`
	// Levels has the times at which the level is known.
	Levels []LevelAnswer `json:"levels"`
}

// LevelAnswer is a time at one level.
type LevelAnswer struct {
	Level plugins.Level `json:"level"`
	From  time.Time     `json:"from"`
	To    time.Time     `json:"to"`
}

// SeriesAnswer is a device or a workload.
type SeriesAnswer struct {
	Device string `json:"device,omitempty"`
	// Cgroup, Name and PodUID of a workload.
	Cgroup string `json:"cgroup,omitempty"`
	Name   string `json:"name,omitempty"`
	PodUID string `json:"podUid,omitempty"`
	// Values by their key in /api/v1/snapshot.
	Values map[string]Values `json:"values"`
}

// Values of each step.
type Values struct {
	Mean Numbers `json:"mean"`
	Max  Numbers `json:"max"`
}

// Numbers are null where they are NaN.
type Numbers []float64

// MarshalJSON writes each number with the digits that are kept of it.
func (n Numbers) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, v := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if math.IsNaN(v) {
			b.WriteString("null")
			continue
		}
		b.Write(strconv.AppendFloat(b.AvailableBuffer(), v, 'g', 4, 64))
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}

// Answer is what is kept of a range, at the steps that are kept. workload is the name of
// one as in Workload, or empty.
func (s *Store) Answer(r Range, workload string) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := r.shortest()
	a := Answer{
		Range: r.Name, From: r.From, To: r.To, StepSeconds: int(step.Seconds()), Rules: []RuleAnswer{}, Node: map[string]Values{},
		Disks: s.seriesAnswers(kindDisk, r, step), NICs: s.seriesAnswers(kindNIC, r, step), Omitted: s.omitted,
	}
	if n := s.find(kindNode, nodeName); n != nil {
		a.Node, _ = n.answer(r, step)
	}
	for _, rule := range s.of(kindRule) {
		if levels := rule.levels(r, step); len(levels) > 0 {
			plugin, scope := ruleParts(rule.name)
			a.Rules = append(a.Rules, RuleAnswer{plugin, scope, rule.resource, levels})
		}
	}
	if workload != "" {
		for _, w := range s.workloads(workload) {
			v, _ := w.answer(r, step)
			a.Workloads = append(a.Workloads, SeriesAnswer{Cgroup: w.name, Name: w.title, PodUID: w.pod, Values: v})
		}
	}
	return a
}

func (s *Store) seriesAnswers(k kind, r Range, step time.Duration) []SeriesAnswer {
	list := []SeriesAnswer{}
	for _, one := range s.of(k) {
		if v, known := one.answer(r, step); known {
			list = append(list, SeriesAnswer{Device: one.name, Values: v})
		}
	}
	return list
}

// answer is all columns, and whether any has a value.
func (one *series) answer(r Range, step time.Duration) (_ map[string]Values, known bool) {
	all := map[string]Values{}
	for column, name := range one.kind.columnNames() {
		v := Values{}
		for _, p := range one.points(r, step, column) {
			known = known || p.known
			if !p.known {
				p.mean, p.max = absent(), absent()
			}
			v.Mean, v.Max = append(v.Mean, p.mean), append(v.Max, p.max)
		}
		all[name] = v
	}
	return all, known
}

// levels are the times at one level; none is one as well.
func (one *series) levels(r Range, step time.Duration) []LevelAnswer {
	var list []LevelAnswer
	for i, p := range one.points(r, step, ruleLevel) {
		if !p.known {
			continue
		}
		level, from := levelOf(p), r.From.Add(time.Duration(i)*step)
		if last := len(list) - 1; last >= 0 && list[last].Level == level && list[last].To.Equal(from) {
			list[last].To = from.Add(step)
			continue
		}
		list = append(list, LevelAnswer{level, from, from.Add(step)})
	}
	return list
}
