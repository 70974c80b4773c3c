package lease_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/lease"
)

var noon = lease.Micro(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func text(t testing.TB, of any) string {
	t.Helper()
	b, err := json.Marshal(of)
	require.NoError(t, err)
	return string(b)
}

func asked(change ...func(*lease.Request)) []lease.Request {
	r := lease.Request{UID: "6c1f", Namespace: "shop", Name: "web-0", Plugin: "memory-stall", Reason: "stall 31 %", Resource: "memory", Level: "hard", Since: noon}
	for _, c := range change {
		c(&r)
	}
	return []lease.Request{r}
}

// What becomes part of a path, of an answer or of a log is what an agent of ours
// could have written, or nothing of it is read.
func TestContentRequestBounds(t *testing.T) {
	many := func(n int) (list []lease.Request) {
		for i := range n {
			list = append(list, asked(func(r *lease.Request) { r.UID = fmt.Sprint(i) })...)
		}
		return list
	}
	later := func(r *lease.Request) { r.Since = lease.Micro(noon.Add(time.Second)) }
	for what, row := range map[string]struct {
		list []lease.Request
		why  string
	}{
		"one of ours":                 {asked(), ""},
		"as many as there may be":     {many(lease.MaxRequests), ""},
		"one more":                    {many(lease.MaxRequests + 1), "17 requests, at most 16 are allowed"},
		"2,000":                       {many(2000), "longer than 49152 bytes"},
		"no UID":                      {asked(func(r *lease.Request) { r.UID = "" }), "invalid UID"},
		"a long UID":                  {asked(func(r *lease.Request) { r.UID = strings.Repeat("u", 65) }), "invalid UID"},
		"the longest UID":             {asked(func(r *lease.Request) { r.UID = strings.Repeat("u", 64) }), ""},
		"a UID of one blank":          {asked(func(r *lease.Request) { r.UID = " " }), "invalid UID"},
		"a UID beyond ASCII":          {asked(func(r *lease.Request) { r.UID = "é" }), "invalid UID"},
		"a UID of the last one":       {asked(func(r *lease.Request) { r.UID = "!~" }), ""},
		"a UID with a line break":     {asked(func(r *lease.Request) { r.UID = "u\nlevel=ERROR" }), "invalid UID"},
		"a name that is a path":       {asked(func(r *lease.Request) { r.Name = "../../nodes" }), "invalid pod name"},
		"no name":                     {asked(func(r *lease.Request) { r.Name = "" }), "invalid pod name"},
		"a namespace that is one":     {asked(func(r *lease.Request) { r.Namespace = "a/b" }), "invalid namespace"},
		"no namespace":                {asked(func(r *lease.Request) { r.Namespace = "" }), "invalid namespace"},
		"a plugin with a quote":       {asked(func(r *lease.Request) { r.Plugin = `a"b` }), "invalid plugin name"},
		"of no plugin":                {asked(func(r *lease.Request) { r.Plugin = "" }), ""},
		"a long reason":               {asked(func(r *lease.Request) { r.Reason = strings.Repeat("x", 257) }), "reason longer than 256 bytes"},
		"the longest reason":          {asked(func(r *lease.Request) { r.Reason = strings.Repeat("x", 256) }), ""},
		"a resource that is none":     {asked(func(r *lease.Request) { r.Resource = "disc" }), "unknown resource"},
		"a level that is none":        {asked(func(r *lease.Request) { r.Level = "extreme" }), "unknown level"},
		"one that says neither":       {asked(func(r *lease.Request) { r.Resource, r.Level = "", "" }), ""},
		"a moment that is none":       {asked(func(r *lease.Request) { r.Since = lease.Micro(time.Time{}) }), "missing time of choice"},
		"one pod, asked for again":    {append(asked(), asked(later)...), ""},
		"one that stands there twice": {append(asked(), asked()...), "request 1 is a duplicate"},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := lease.ReadContent(map[string]string{lease.EvictionsAnnotation: text(t, row.list), lease.AnswersAnnotation: `[{"uid":"u1"}]`})
			assert.Len(t, got.Answers, 1, "the controller's own word is read all the same")
			if row.why == "" {
				require.NoError(t, err)
				assert.Len(t, got.Requests, len(row.list))
				return
			}
			require.ErrorContains(t, err, row.why)
			assert.Empty(t, got.Requests)
		})
	}
}

// What a node says becomes labels of metrics: only words of ours do.
func TestContentReportKnownWordsOnly(t *testing.T) {
	got, err := lease.ReadContent(map[string]string{lease.NodeAnnotation: text(t, lease.NodeReport{
		Pressure: map[string]string{"disk": "hard", "memory": "on fire", "up{x=\"y\"}": "soft", "a newer agent's": "soft"},
		Reported: map[string]string{"cpu": "soft", "x": "soft", "disk": "very"}, NotJudged: []string{"network", "disk", "a{}", "network"},
		Plugins: map[string]string{"vendor.io/files": "soft", "a b": "soft", "x": "very", strings.Repeat("y", 129): "hard"},
	})})
	require.NoError(t, err)
	assert.Equal(t, lease.NodeReport{Pressure: map[string]string{"disk": "hard"}, Reported: map[string]string{"cpu": "soft"}, NotJudged: []string{"disk", "network"}, Plugins: map[string]string{"vendor.io/files": "soft"}}, got.Report)

	plugins := map[string]string{}
	for i := range lease.MaxPlugins + 1 {
		plugins[fmt.Sprint("p", i)] = "soft"
	}
	for what, row := range map[string]struct {
		report lease.NodeReport
		why    string
	}{
		"nine plugins":   {lease.NodeReport{Plugins: plugins}, "more than 8 plugins"},
		"less than none": {lease.NodeReport{DataMoverBudget: new(-1)}, "negative data mover budget"},
		"a long one":     {lease.NodeReport{Pressure: map[string]string{"disk": strings.Repeat("x", 4<<10)}}, "longer than 4096 bytes"},
	} {
		got, err := lease.ReadContent(map[string]string{lease.NodeAnnotation: text(t, row.report)})
		require.ErrorContains(t, err, row.why, what)
		assert.Equal(t, lease.NodeReport{}, got.Report, what)
	}
}

func TestContentReportAtBounds(t *testing.T) {
	plugins := map[string]string{}
	for i := range lease.MaxPlugins {
		plugins[fmt.Sprint("p", i)] = "soft"
	}
	want := lease.NodeReport{Plugins: plugins, DataMoverBudget: new(0)}
	longest := text(t, want)
	longest += strings.Repeat(" ", 4<<10-len(longest))
	got, err := lease.ReadContent(map[string]string{lease.NodeAnnotation: longest})
	require.NoError(t, err)
	assert.Equal(t, want, got.Report)
	_, err = lease.ReadContent(map[string]string{lease.NodeAnnotation: longest + " "})
	require.ErrorContains(t, err, "longer than 4096 bytes")
}

func TestContentFirstErrorNamed(t *testing.T) {
	_, err := lease.ReadContent(map[string]string{lease.NodeAnnotation: `7`, lease.EvictionsAnnotation: `7`, lease.AnswersAnnotation: `7`})
	require.ErrorContains(t, err, "annotation "+lease.NodeAnnotation)
}

func TestContentFilterAnnotations(t *testing.T) {
	assert.Nil(t, lease.FilterAnnotations(map[string]string{"other": "x"}))
	long := map[string]string{"other": "x", lease.NodeAnnotation: `{}`, lease.EvictionsAnnotation: strings.Repeat(" ", 250<<10)}
	kept := lease.FilterAnnotations(long)
	assert.Len(t, kept, 2)
	assert.LessOrEqual(t, len(kept[lease.EvictionsAnnotation]), 49<<10)
	_, err := lease.ReadContent(kept)
	_, want := lease.ReadContent(long)
	assert.Equal(t, want, err, "what is too long stays too long")
}

func FuzzContentBounds(f *testing.F) {
	f.Add(text(f, asked()), `{"pressure":{"disk":"hard"},"plugins":{"p":"soft"},"budget":1}`)
	f.Add(`[{"uid":"u","since":"2026-03-01T12:00:00.000000Z","graceSeconds":1099511627776}]`, `{"pressure":{"\u0000":"hard"}}`)
	f.Fuzz(func(t *testing.T, requests, report string) {
		got, _ := lease.ReadContent(map[string]string{lease.EvictionsAnnotation: requests, lease.NodeAnnotation: report})
		require.LessOrEqual(t, len(got.Requests), lease.MaxRequests)
		require.LessOrEqual(t, len(got.Report.Plugins), lease.MaxPlugins)
		for resource, level := range got.Report.Pressure {
			require.Contains(t, []string{"memory", "disk", "network", "filesystem", "cpu"}, resource)
			require.Contains(t, []string{"soft", "hard"}, level)
		}
		for _, r := range got.Requests {
			require.NotContains(t, r.Namespace+r.Name+r.UID, "\n")
			require.NotContains(t, r.Namespace+r.Name, "/")
			require.LessOrEqual(t, len(r.Reason), lease.MaxReason)
		}
	})
}

func TestTruncateAtCharacter(t *testing.T) {
	assert.Equal(t, "abc", lease.Truncate("abc", 3))
	assert.Equal(t, "ab…", lease.Truncate("abcdef", 5))
	assert.Equal(t, "a…", lease.Truncate("aéééé", 5))
}
