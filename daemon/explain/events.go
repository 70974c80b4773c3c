package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// Event is an Event about a decision. The API server stores it for an hour by
// default.
type Event struct {
	Time time.Time `json:"time"`
	// Reason is one word, such as PressureEviction.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Count is how often it occurred, if more than once.
	Count int32 `json:"count,omitempty"`
}

// component is the source of Plimsoll's Events.
const component = "plimsoll-agent"

// eventsTimeout bounds the request to the API server.
const eventsTimeout = 10 * time.Second

// ErrNoEvents means that the API server has no Event about the Node.
var ErrNoEvents = errors.New("the API server has no Event of its agent")

// Events are the agent's Events about its Node, newest first; with a name,
// those that mention it. The error wraps ErrNoEvents if there are none, and
// ErrNotInDecisions if none mentions the name.
func Events(ctx context.Context, from corev1client.EventsGetter, node, name string) ([]Event, error) {
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	ours := fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", "Node"),
		fields.OneTermEqualSelector("involvedObject.name", node),
		fields.OneTermEqualSelector("source", component),
	)
	kept, err := from.Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: ours.String()})
	if err != nil {
		return nil, fmt.Errorf("events of node %s: %w", node, err)
	}
	var list []Event
	mentions := mention(name)
	for i := range kept.Items {
		if e := &kept.Items[i]; mentions.MatchString(e.Message) {
			list = append(list, newEvent(e))
		}
	}
	slices.SortStableFunc(list, func(a, b Event) int { return b.Time.Compare(a.Time) })
	if len(list) > 0 {
		return list, nil
	}
	if name != "" {
		return nil, fmt.Errorf("%q: %w: none of %d Events about node %s mentions it", name, ErrNotInDecisions, len(kept.Items), node)
	}
	return nil, fmt.Errorf("node %s: %w", node, ErrNoEvents)
}

// mention matches texts that have a name as a whole: web-1 is not in web-10, in web-1.a or
// in my-web-1, and shop/web-1 has both names. All texts have the empty one.
func mention(name string) *regexp.Regexp {
	if name == "" {
		return regexp.MustCompile("")
	}
	return regexp.MustCompile(`(?:^|[^\w.-])` + regexp.QuoteMeta(strings.ToValidUTF8(name, "\uFFFD")) + `[.-]*(?:$|[^\w./-])`)
}

func newEvent(e *corev1.Event) Event {
	out := Event{Time: e.LastTimestamp.Time, Reason: e.Reason, Message: e.Message}
	if out.Time.IsZero() {
		out.Time = e.CreationTimestamp.Time
	}
	if e.Count > 1 {
		out.Count = e.Count
	}
	return out
}

// WriteEvents writes them in the order of the list, as of now.
func WriteEvents(w io.Writer, list []Event, now time.Time) error {
	t := text{now: now}
	for _, e := range list {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(", %d times", e.Count)
		}
		t.line("%s UTC, %s ago: %s%s", view.Stamp(e.Time), view.Age(now.Sub(e.Time)), e.Reason, times)
		t.line("  %s", e.Message)
	}
	return t.writeTo(w)
}
