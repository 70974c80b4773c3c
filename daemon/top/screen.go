package top

import (
	"math"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// Screen is what a user of plimsoll top sees, and where in it. It is a value: each
// method returns the next one, and lines draws it.
type Screen struct {
	width, height int
	now           time.Time

	state *view.State
	// arrived is when the state came, and sampled when its sample was first seen, both by
	// this machine's clock: the agent's may differ. problem is why the question after it
	// has no answer; empty: it has one, or has not ended.
	arrived time.Time
	sampled time.Time
	problem string
	period  time.Duration // between two questions

	list   list
	places [lists]place // in each list
	typing bool         // a filter
	help   bool
	detail string // id of what is shown in full; empty: the list is
	scroll int    // first visible line of the help or the detail
}

// place is where the user is in a list.
type place struct {
	// column sorts: 0 is the list's own order, n its column n-1.
	column  int
	reverse bool
	filter  string
	// cursor is the index of the selected row, and id what it is about: a row that
	// moves keeps the cursor. The first row has no id, so that the cursor stays on top.
	cursor int
	id     string
	first  int // visible row
}

// NewScreen shows a state that has just arrived; the next one is expected after a period.
func NewScreen(s *view.State, period time.Duration, now time.Time, width, height int) Screen {
	return Screen{state: s, arrived: now, sampled: takenAt(s, now), now: now, period: period, width: width, height: height}.settle()
}

// takenAt is when the sample of a state was taken that arrives now, by this machine's clock.
func takenAt(s *view.State, now time.Time) time.Time {
	if s == nil {
		return now
	}
	return now.Add(-s.SampleAge)
}

// Resized is the screen in a terminal of another size.
func (s Screen) Resized(width, height int) Screen {
	s.width, s.height = width, height
	return s.settle()
}

// Answered is the screen with a new state.
func (s Screen) Answered(st *view.State, now time.Time) Screen {
	if s.state == nil || st == nil || !st.Snapshot.Time.Equal(s.state.Snapshot.Time) {
		s.sampled = takenAt(st, now)
	}
	s.state, s.arrived, s.now, s.problem = st, now, now, ""
	return s.settle()
}

// Failed is the screen after a question without an answer.
func (s Screen) Failed(why string, now time.Time) Screen {
	s.problem, s.now = why, now
	return s.settle()
}

// At is the screen at a later time: what is shown of ages.
func (s Screen) At(now time.Time) Screen {
	s.now = now
	return s.settle()
}

// Key is a key by its name, or the character that it types.
type Key string

// The keys that type no character.
const (
	KeyUp        Key = "Up"
	KeyDown      Key = "Down"
	KeyLeft      Key = "Left"
	KeyRight     Key = "Right"
	KeyPageUp    Key = "PgUp"
	KeyPageDown  Key = "PgDn"
	KeyHome      Key = "Home"
	KeyEnd       Key = "End"
	KeyEnter     Key = "Enter"
	KeyEsc       Key = "Esc"
	KeyTab       Key = "Tab"
	KeyBackTab   Key = "Shift-Tab"
	KeyBackspace Key = "Backspace"
	KeyInterrupt Key = "Ctrl-C"
)

// Pressed is the screen after a key; quit: the user wants to leave.
func (s Screen) Pressed(k Key) (next Screen, quit bool) {
	switch {
	case k == KeyInterrupt, k == "q" && !s.typing:
		return s, true
	case s.state == nil:
		return s, false
	case s.typing:
		return s.typed(k).settle(), false
	case k == "?":
		s.help, s.scroll = !s.help, 0
		return s, false
	case s.help || s.detail != "":
		return s.pressedInText(k), false
	}
	return s.pressedInList(k).settle(), false
}

// maxFilter is the most characters of a filter.
const maxFilter = 100

// typed is the screen after a key of a filter.
func (s Screen) typed(k Key) Screen {
	p := &s.places[s.list]
	r, size := utf8.DecodeRuneInString(string(k))
	switch {
	case k == KeyEnter:
		s.typing = false
	case k == KeyEsc:
		s.typing, p.filter = false, ""
	case k == KeyBackspace && p.filter == "":
		s.typing = false
	case k == KeyBackspace:
		_, last := utf8.DecodeLastRuneInString(p.filter)
		p.filter = p.filter[:len(p.filter)-last]
	case size == len(k) && unicode.IsPrint(r) && utf8.RuneCountInString(p.filter) < maxFilter:
		p.filter += string(k)
	}
	return s
}

// pressedInText is the screen after a key in the help or a detail.
func (s Screen) pressedInText(k Key) Screen {
	switch {
	case k == KeyEsc, k == KeyBackspace, k == KeyEnter:
		if s.help {
			s.help = false
		} else {
			s.detail = ""
		}
		s.scroll = 0
		return s.settle()
	default:
		s.scroll = moved(k, s.scroll, s.textHeight())
	}
	return s.settle()
}

// moved is where a key moves to from a row or line, not yet within bounds.
func moved(k Key, from, page int) int {
	switch k {
	case KeyUp, "k":
		return from - 1
	case KeyDown, "j":
		return from + 1
	case KeyPageUp:
		return from - max(1, page)
	case KeyPageDown, " ":
		return from + max(1, page)
	case KeyHome, "g":
		return 0
	case KeyEnd, "G":
		return math.MaxInt
	default:
		return from
	}
}

func (s Screen) pressedInList(k Key) Screen {
	p := &s.places[s.list]
	switch k {
	case KeyTab, KeyRight:
		s.list = (s.list + 1) % lists
	case KeyBackTab, KeyLeft:
		s.list = (s.list + lists - 1) % lists
	case "s":
		p.column = (p.column + 1) % (1 + len(s.table().head))
	case "S":
		columns := 1 + len(s.table().head)
		p.column = (p.column + columns - 1) % columns
	case "r":
		p.reverse = !p.reverse
	case "/":
		s.typing = true
	case KeyEsc:
		p.filter = ""
	case KeyEnter:
		if rows := s.table().rows; len(rows) > 0 {
			s.detail, s.scroll = rows[p.cursor].id, 0
		}
	default:
		_, rows := s.heights()
		p.cursor = moved(k, p.cursor, rows)
		p.selects(s.table().rows)
	}
	return s
}

// selects the row of the cursor, within bounds.
func (p *place) selects(rows []row) {
	p.cursor = max(0, min(p.cursor, len(rows)-1))
	p.id = ""
	if p.cursor > 0 {
		p.id = rows[p.cursor].id
	}
}

// settle puts cursor and first line where the rows are now.
func (s Screen) settle() Screen {
	if s.state == nil {
		return s
	}
	rows := s.table().rows
	p := &s.places[s.list]
	if at := slices.IndexFunc(rows, func(r row) bool { return r.id == p.id }); p.id != "" && at >= 0 {
		p.cursor = at
	}
	p.selects(rows)
	_, visible := s.heights()
	p.first = max(0, min(p.first, p.cursor, len(rows)-visible))
	p.first = max(p.first, p.cursor-visible+1)
	s.scroll = max(0, min(s.scroll, len(s.text())-s.textHeight()))
	return s
}
