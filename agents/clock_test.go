package agents

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/lease"
)

func TestClockBoundsAPIServerTime(t *testing.T) {
	second := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	for what, row := range map[string]struct {
		was                    time.Time // at noon; zero: nothing was heard
		stamp, asked, answered time.Time
		want                   time.Time // at noon
	}{
		"the first answer":                  {time.Time{}, second(-1200), second(-1), second(0), second(-1200)},
		"one that leaves it as it is":       {second(-1200), second(-1201), second(-1), second(0), second(-1200)},
		"within the second that is cut off": {second(-1200.5), second(-1201), second(-0.1), second(0), second(-1200.5)},
		"one that was long on its way":      {second(0.5), second(-3), second(-5), second(0), second(0.5)},
		"it is later than was thought":      {second(-1200), second(-1100), second(-1), second(0), second(-1100)},
		"it is earlier, by hours":           {second(7200), second(0), second(-1), second(0), second(2)},
	} {
		t.Run(what, func(t *testing.T) {
			c := Clock{}
			if !row.was.IsZero() {
				c.syncedAt, c.serverAt = noon, row.was
			}
			c.observe(row.stamp, row.asked, row.answered)
			assert.Equal(t, row.want, c.now(noon))
			assert.Equal(t, row.want.Add(time.Minute), c.now(noon.Add(time.Minute)), "it goes on by our own")
		})
	}
}

func TestClockReadsDateOfEachAnswer(t *testing.T) {
	date := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date)
	}))
	defer s.Close()
	var c Clock
	client := http.Client{Transport: c.Wrap(http.DefaultTransport)}
	get := func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
	assert.WithinDuration(t, time.Now(), c.Now(), time.Minute, "nothing was heard")
	date = "yesterday"
	get()
	assert.WithinDuration(t, time.Now(), c.Now(), time.Minute, "nothing was said")
	date = time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	get()
	assert.WithinDuration(t, time.Now().Add(-time.Hour), c.Now(), time.Minute)
	broken := c.Wrap(failing{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	_, err = broken.RoundTrip(r) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, errBroken)
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errBroken }

// The leader before let one go a minute ago. The one that follows has another
// idea of the time; the API server's is what counts.
func TestSuccessorKeepsEvictionLimits(t *testing.T) {
	let := accepted("p0", "shop/ReplicaSet/web", time.Minute)
	for what, row := range map[string]struct {
		ours   time.Duration // ahead of the API server
		server time.Duration // since noon
		seen   time.Duration // before now; 0: never
		went   time.Duration // before now
	}{
		"the same":                       {0, 0, 0, time.Minute},
		"an hour ahead":                  {time.Hour, 0, 0, time.Minute},
		"an hour behind":                 {-time.Hour, 0, 0, time.Minute},
		"61 s ahead":                     {61 * time.Second, 0, 0, time.Minute},
		"the API server's was set back":  {0, -time.Hour, 0, 0},
		"and then it counts from now on": {0, -time.Hour, 5 * time.Minute, 5 * time.Minute},
		"long seen, but not so long ago": {time.Hour, 0, time.Second, time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			now := noon.Add(row.ours)
			k := History{ServerTime: noon.Add(row.server), FirstSeen: map[string]time.Time{}}
			if row.seen > 0 {
				k.FirstSeen["p0"] = now.Add(-row.seen)
			}
			g := NewEvaluation(now, DefaultSettings(), &Judgement{Agents: []Judged{carrying("n", let)}}, k)
			require.Len(t, g.PastEvictions, 1)
			assert.Equal(t, row.went, now.Sub(g.PastEvictions[0].Time))
			g.Pods = 1000
			code, _ := refusal(g.RefusePod(asking(), pod()))
			assert.Equal(t, CodeOwner, code)
			assert.Len(t, Answers(k.ServerTime, DefaultSettings(), lease.Content{Answers: []lease.Answer{let}}, nil), 1, "and the Lease says it still")
		})
	}
}

func TestLeaderWritesAPIServerTime(t *testing.T) {
	s := newFixture(t)
	behind := time.Now().Add(-time.Hour)
	s.r.Clock = func() time.Time { return behind }
	s.node("n", "web", "app")
	s.asks("n", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
	s.r.round(t.Context())
	got := s.answers("n")
	require.Len(t, got, 1)
	assert.True(t, got[0].At.Time.Equal(lease.Micro(behind).Time), "%s", got[0].At)
	assert.LessOrEqual(t, len(got[0].Reason), lease.MaxReason)
	require.Len(t, s.written, 2, "a note that it may go, and the answer")
	note, err := lease.ReadContent(map[string]string{lease.AnswersAnnotation: s.written[0]})
	require.NoError(t, err)
	require.Len(t, note.Answers, 1)
	assert.Equal(t, got[0].At, note.Answers[0].At)

	s.r.reset() // another leads
	s.node("n", "web", "app")
	s.leases["n"].Annotations = map[string]string{lease.AnswersAnnotation: mustJSON(t, []lease.Answer{got[0]})}
	s.beat("n", nil)
	s.pods["app"].OwnerReferences[0].Name = "web-2" // of the same Deployment
	s.asks("n", lease.Request{UID: "app", Namespace: "shop", Name: "app", Since: lease.Micro(noon)})
	s.r.round(t.Context())
	assert.Len(t, s.posted, 1, "the budget of its owner is spent")
}
