package systemd_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/systemd"
)

type entry struct {
	Message  string
	Priority journal.Priority
	Fields   map[string]string
}

// kept is a log whose entries are kept.
func kept(level slog.Level) (*slog.Logger, *[]entry) {
	var list []entry
	return slog.New(&systemd.Journal{Level: level, Send: func(message string, p journal.Priority, fields map[string]string) error {
		list = append(list, entry{message, p, fields})
		return nil
	}}), &list
}

func TestJournalFields(t *testing.T) {
	log, list := kept(slog.LevelInfo)
	log.Info("data movers", "dryRun", true, "node", "a b", "took", 2*time.Second,
		"at", time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), "error", errors.New("line one\nline two"), "list", []string{"x", "y"})
	want := []entry{{
		Message: `data movers dryRun=true node="a b" took=2s at=2026-01-02T03:04:05.000006Z error="line one\nline two" list="[x y]"`, Priority: journal.PriInfo,
		Fields: map[string]string{
			"SYSLOG_IDENTIFIER": "plimsoll", "PLIMSOLL_MESSAGE": "data movers", "PLIMSOLL_DRY_RUN": "true", "PLIMSOLL_NODE": "a b",
			"PLIMSOLL_TOOK": "2s", "PLIMSOLL_AT": "2026-01-02T03:04:05.000006Z", "PLIMSOLL_ERROR": "line one\nline two", "PLIMSOLL_LIST": "[x y]",
		},
	}}
	assert.Empty(t, cmp.Diff(want, *list))
}

func TestJournalGroups(t *testing.T) {
	log, list := kept(slog.LevelInfo)
	of := log.With("plugin", "memory-stall").WithGroup("pod").With("name", "a")
	of.LogAttrs(t.Context(), slog.LevelInfo, "one", slog.String("uid", "u"), slog.Group("owner", "kind", "Job"), slog.Group("", "inline", 1), slog.Attr{})
	log.WithGroup("").Info("two")
	require.Len(t, *list, 2)
	assert.Equal(t, `one plugin=memory-stall pod.name=a pod.uid=u pod.owner.kind=Job pod.inline=1`, (*list)[0].Message)
	assert.Equal(t, "Job", (*list)[0].Fields["PLIMSOLL_POD_OWNER_KIND"])
	assert.Equal(t, "two", (*list)[1].Message, "what one logger has another has not")
}

// Two loggers made of one must not write over each other's facts.
func TestJournalLoggersApart(t *testing.T) {
	log, list := kept(slog.LevelInfo)
	base := log.With("a", 1, "b", 2, "c", 3)
	one, two := base.With("of", "one"), base.With("of", "two")
	one.Info("m", "x", 1)
	two.Info("m", "x", 2)
	one.Info("m")
	assert.Equal(t, []string{"m a=1 b=2 c=3 of=one x=1", "m a=1 b=2 c=3 of=two x=2", "m a=1 b=2 c=3 of=one"},
		[]string{(*list)[0].Message, (*list)[1].Message, (*list)[2].Message})
}

// One logger is used by many goroutines at once.
func TestJournalConcurrent(t *testing.T) {
	var mixed atomic.Int32
	log := slog.New(&systemd.Journal{Level: slog.LevelInfo, Send: func(message string, _ journal.Priority, fields map[string]string) error {
		if message != "m a=1 b=2 c=3 of="+fields["PLIMSOLL_OF"] {
			mixed.Add(1)
		}
		return nil
	}}).With("a", 1, "b", 2, "c", 3)
	var all sync.WaitGroup
	for who := range 4 {
		all.Go(func() {
			for range 1000 {
				log.Info("m", "of", who)
			}
		})
	}
	all.Wait()
	assert.Zero(t, mixed.Load())
}

func TestJournalPriorities(t *testing.T) {
	log, list := kept(slog.LevelInfo)
	log.Debug("d")
	log.Info("i")
	log.Warn("w")
	log.Error("e")
	var got []journal.Priority
	for _, e := range *list {
		got = append(got, e.Priority)
	}
	assert.Equal(t, []journal.Priority{journal.PriInfo, journal.PriWarning, journal.PriErr}, got)
	log, list = kept(slog.LevelDebug)
	log.Debug("d")
	assert.Equal(t, journal.PriDebug, (*list)[0].Priority)
}

// The journal drops an entry's field with a name that it does not take, so
// whatever a key is called must become one that it does.
func FuzzJournalFieldNames(f *testing.F) {
	for _, s := range []string{"dryRun", "", "_x", "a.b-c", "ß", "HTTPStatus", "x2y", strings.Repeat("aB", 40)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		log, list := kept(slog.LevelInfo)
		log.Info("m", slog.Int(key, 1))
		for name := range (*list)[0].Fields {
			assert.Regexp(t, `^[A-Z][A-Z0-9_]{0,63}$`, name)
		}
	})
}

// A line in the journal reads as the same line does on a terminal.
func FuzzJournalMessageAsSlog(f *testing.F) {
	for _, s := range []string{"plain", "", "a b", `"`, "x=y", "\n", "ß", "\x00", "é", "\u00a0", "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		value = strings.ReplaceAll(value, "\x7f", "") // slog lets it through, which journalctl does not show
		var text bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "key", value)
		_, want, _ := strings.Cut(text.String(), "msg=")
		log, list := kept(slog.LevelInfo)
		log.Info("m", "key", value)
		assert.Equal(t, strings.TrimSuffix(want, "\n"), (*list)[0].Message)
	})
}
