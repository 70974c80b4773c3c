package config

import (
	"cmp"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// What contradicts between sections is here; what must hold within one stands beside
// its struct. All bounds keep a valid typo from stopping the agent, filling its memory
// or setting a threshold that is always met.
const (
	minTick         = 100 * time.Millisecond
	maxTick         = time.Minute
	maxHistoryTicks = 7200
	watchdogTicks   = 10
	// maxAgePeriods is how many times a mount is asked before its values are too
	// old.
	maxAgePeriods = 2
)

// Validate lists every value that must not be used.
func (a Agent) Validate() problems.List {
	found := ofSections(a)
	at := found.At("")
	at.Duration("tick", a.Tick, minTick, maxTick)
	at.Duration("window", a.Window, 0, problems.MaxDuration)
	at.Duration("history", a.History, 0, problems.MaxDuration)
	at.Duration("watchdog", a.Watchdog, 0, problems.MaxDuration)
	tick, window := problems.Period{Key: "tick", Value: a.Tick}, problems.Period{Key: "window", Value: a.Window}
	at.AtLeast(window, tick, 2)
	at.AtLeast(problems.Period{Key: "watchdog", Value: a.Watchdog}, tick, watchdogTicks)
	at.AtLeast(problems.Period{Key: "eviction.round", Value: a.Eviction.Round}, tick, 1)
	windows := a.ruleWindows()
	for _, w := range windows {
		at.AtLeast(w, tick, 1)
	}
	a.validateHistory(at, windows)
	if f := a.Plugins.Filesystem; f.Enabled {
		at.AtLeast(problems.Period{Key: "plugins.filesystem.maxAge", Value: f.MaxAge}, problems.Period{Key: "filesystems.every", Value: a.Filesystems.Every}, maxAgePeriods)
	}
	if r := a.Plugins.RootfsOveruse; r.Enabled {
		at.AtLeast(problems.Period{Key: "plugins.rootfsOveruse.maxAge", Value: r.MaxAge}, problems.Period{Key: "containerRuntime.every", Value: a.ContainerRuntime.Every}, maxAgePeriods)
	}
	at.Must(a.Recording.Dir == "" || a.Recording.Dir != a.State.Dir, "want two directories: each is locked by its writer", "recording.dir", "state.dir")
	at.Must(a.Eviction.Via != evict.ViaController || a.Lease.Enabled,
		"the agent's Lease carries requests to the controller: want lease.enabled: true", "eviction.via", "lease.enabled")
	return found
}

// ruleWindows lists how far each rule that is enabled looks back. clearFor counts too:
// that a rule was not met must be visible for so long.
func (a Agent) ruleWindows() (list []problems.Period) {
	for _, rule := range fieldsOf(reflect.ValueOf(a.Plugins.Inner)) {
		if rule.value.Kind() != reflect.Struct {
			continue
		}
		if enabled, has := lookup(fieldsOf(rule.value), "enabled"); has && !enabled.value.Bool() {
			continue
		}
		walkBelow("plugins."+rule.key+".", rule.value, maxSchemaDepth, func(path string, f field) {
			if d, is := reflect.TypeAssert[time.Duration](f.value); is && (f.key == "window" || f.key == "clearFor") {
				list = append(list, problems.Period{Key: path, Value: d})
			}
		})
	}
	return list
}

// validateHistory checks that samples are kept long enough for the ratio over a
// rule's longest window: its oldest value needs the samples before it.
func (a Agent) validateHistory(at problems.Section, windows []problems.Period) {
	if len(windows) > 0 {
		longest := slices.MaxFunc(windows, func(x, y problems.Period) int { return cmp.Compare(x.Value, y.Value) })
		at.Must(a.History >= longest.Value+a.Window,
			fmt.Sprintf("history (%s) must reach back over %s (%s) and window (%s) together", problems.Duration(a.History),
				longest.Key, problems.Duration(longest.Value), problems.Duration(a.Window)),
			"history", longest.Key, "window")
	}
	at.Must(a.Tick < minTick || a.History/a.Tick <= maxHistoryTicks,
		fmt.Sprintf("history (%s) must not hold more than %d ticks (%s)", problems.Duration(a.History),
			maxHistoryTicks, problems.Duration(a.Tick)),
		"history", "tick")
}

// section is a struct of a document that says which of its values must not be used.
type section interface{ Validate(at problems.Section) }

// ofSections asks each section of a document, the outer one first, and of a list each
// element.
func ofSections(d Document) problems.List {
	var found problems.List
	validateBelow(&found, "", structOf(d))
	return found
}

func validateBelow(found *problems.List, path string, v reflect.Value) {
	whole := reflect.New(v.Type()) // its method may need a pointer
	whole.Elem().Set(v)
	if s, is := reflect.TypeAssert[section](whole); is {
		s.Validate(found.At(path))
	}
	for i := range v.NumField() {
		of := v.Field(i)
		key, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case of.Kind() == reflect.Struct && options == "inline":
			validateBelow(found, path, of)
		case of.Kind() == reflect.Struct:
			validateBelow(found, found.At(path).Key(key), of)
		case isStructList(of.Type()):
			for n := range of.Len() {
				validateBelow(found, found.At(path).Element(key, n).Key(""), of.Index(n))
			}
		}
	}
}

const maxPort = 65535

// validateAddresses requires host:port, the host possibly empty or in brackets.
func validateAddresses(at problems.Section, key string, addresses []string) {
	for i, address := range addresses {
		why := addressProblem(address)
		at.Element(key, i).Must(why == "", why)
	}
}

// addressProblem is empty for host:port, the host possibly empty or in brackets.
func addressProblem(address string) string {
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 64)
	switch {
	case err != nil || strings.ContainsAny(host, " /"):
		return fmt.Sprintf("want host:port (IPv6 as [::1]:9773), got %s", problems.Quote(address))
	case portErr != nil || number > maxPort:
		return fmt.Sprintf("want a port from 0 to %d, got %s", maxPort, problems.Quote(port))
	}
	return ""
}
