package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// emulator is the library's own terminal, which notes when it is restored.
type emulator struct {
	vt.MockTerm

	t        *testing.T
	started  chan struct{} // closed; before that nothing may be asked of it
	restored atomic.Bool
	ended    chan any // what Run returned, or panicked with
}

// newEmulator has the size of many terminals.
func newEmulator(t *testing.T) *emulator {
	return &emulator{
		MockTerm: vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24}), t: t,
		started: make(chan struct{}), ended: make(chan any, 1),
	}
}

func (e *emulator) Start() error {
	defer close(e.started)
	return e.MockTerm.Start()
}

func (e *emulator) Stop() error {
	e.restored.Store(true)
	return e.MockTerm.Stop()
}

// emulate runs a Terminal until the test ends.
func emulate(t *testing.T, x *Terminal, first *view.State) *emulator {
	t.Helper()
	e := newEmulator(t)
	screen, err := tcell.NewTerminfoScreenFromTty(e)
	require.NoError(t, err)
	x.Screen = screen
	if x.Period == 0 {
		x.Period = 10 * time.Millisecond
	}
	if x.State == nil {
		x.State = func(context.Context) (*view.State, error) { return first, nil }
	}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				e.ended <- p
			}
		}()
		e.ended <- x.Run(t.Context(), first)
	}()
	return e
}

// screen is what it shows.
func (e *emulator) screen() string {
	select {
	case <-e.started:
	case <-deadline.After(10 * time.Second):
		require.Fail(e.t, "it did not start")
	}
	_ = e.Drain() // it has no error
	size, err := e.WindowSize()
	require.NoError(e.t, err)
	var lines []string
	for y := range size.Height {
		var b strings.Builder
		wide := false
		for x := range size.Width {
			cell := e.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)})
			switch {
			case cell.C != "":
				b.WriteString(cell.C)
				wide = cell.W == 2
			case wide: // the second column of a wide letter
				wide = false
			default:
				b.WriteByte(' ')
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return strings.Join(lines, "\n")
}

func (e *emulator) shows(texts ...string) string {
	e.t.Helper()
	var screen string
	deadline.Within(e.t, 10*time.Second, fmt.Sprintf("the screen shows %q", texts), func() error {
		screen = e.screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return errors.New(screen)
			}
		}
		return nil
	})
	return screen
}

// end is what Run returned or panicked with.
func (e *emulator) end() any {
	e.t.Helper()
	select {
	case got := <-e.ended:
		assert.True(e.t, e.restored.Load(), "the terminal is restored")
		return got
	case <-deadline.After(10 * time.Second):
		require.Fail(e.t, "it did not end", e.screen())
		return nil
	}
}

func TestTerminal(t *testing.T) {
	t.Run("draws a screen and obeys keys", testScreenObeysKeys)
	t.Run("follows a new size", testNewSize)
	t.Run("shows a lost connection, and the values after it", testLostConnection)
	t.Run("q waits for no question that hangs", testQuitDuringQuestion)
	t.Run("a panic restores the terminal", testPanicRestores)
	t.Run("its end comes with the context's", testEndOfContext)
	t.Run("a name commands nothing", testNameCommandsNothing)
	t.Run("a name of wide letters and marks hides nothing", testWideName)
	t.Run("without colour no cell has a style", testNoColour)
}

func testScreenObeysKeys(t *testing.T) {
	e := emulate(t, &Terminal{Color: true}, scenes.Contended())
	e.shows("Plimsoll  node-a", "[workloads 21]", "> ", "? keys  q quits")
	e.KeyTap(vt.KeyTab)
	e.shows("[disks 3]")
	e.KeyTap(vt.KeyEnter)
	e.shows("nvme0n1 nvme", "CONTENTION", "Esc back")
	e.KeyTap(vt.KeyEsc)
	e.shows("[disks 3]")
	e.KeyTap(vt.KeyQ)
	assert.Nil(t, e.end())
}

func testNewSize(t *testing.T) {
	first := *scenes.Contended()
	first.Agent.TickSeconds = 3600 // the same sample is not told to be old
	e := emulate(t, &Terminal{}, &first)
	e.shows("? keys  q quits")
	for _, size := range []vt.Coord{{X: 40, Y: 12}, {X: 1, Y: 1}, {X: 120, Y: 40}} {
		e.SetSize(size)
		want := NewScreen(&first, 10*time.Millisecond, time.Now(), int(size.X), int(size.Y))
		e.shows(strings.TrimSuffix(plainText(want), "\n"))
	}
}

func testLostConnection(t *testing.T) {
	var lost atomic.Bool
	lost.Store(true)
	e := emulate(t, &Terminal{State: func(context.Context) (*view.State, error) {
		if lost.Load() {
			return nil, errors.New("connection refused")
		}
		return scenes.MemoryHard(), nil
	}}, scenes.Calm())
	e.shows("No new values for ", "connection refused", "No pressure")
	lost.Store(false)
	e.shows("Memory: hard") // perhaps of a screen that is half drawn
	deadline.Within(t, 20*time.Second, "it has new values", func() error {
		if now := e.screen(); !strings.Contains(now, "Memory: hard") || strings.Contains(now, "No new values") {
			return errors.New(now)
		}
		return nil
	})
}

func testQuitDuringQuestion(t *testing.T) {
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	asked := make(chan struct{}, 1)
	e := emulate(t, &Terminal{State: func(context.Context) (*view.State, error) {
		asked <- struct{}{}
		<-hangs
		return nil, errors.New("too late")
	}}, scenes.Calm())
	<-asked
	e.KeyTap(vt.KeyQ)
	assert.Nil(t, e.end())
}

func testPanicRestores(t *testing.T) {
	e := emulate(t, &Terminal{State: func(context.Context) (*view.State, error) { panic("broken \x1b]0;owned\x07") }}, scenes.Calm())
	text := fmt.Sprint(e.end())
	assert.Contains(t, text, `broken \x1b]0;owned\x07`)
	assert.NotContains(t, text, "\x1b")
	assert.Contains(t, text, "terminal_test.go", "the stack is that of the question")
}

func testEndOfContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := newEmulator(t)
	screen, err := tcell.NewTerminfoScreenFromTty(e)
	require.NoError(t, err)
	x := &Terminal{Screen: screen, Period: time.Hour}
	go func() { e.ended <- x.Run(ctx, scenes.Calm()) }()
	e.shows("No pressure")
	cancel()
	assert.Nil(t, e.end())
}

func testNameCommandsNothing(t *testing.T) {
	e := emulate(t, &Terminal{Color: true}, scenes.Hostile())
	e.shows(`\x1b]0;owned\x07`)
	assert.Empty(t, e.GetTitle())
	assert.Zero(t, e.Bells())
}

func testWideName(t *testing.T) {
	s := many(3)
	s.Snapshot.Workloads[0].Name = "\u0301\u0302日本語"
	e := emulate(t, &Terminal{}, s)
	e.shows("日本語", "w001", "? keys  q quits")
}

func testNoColour(t *testing.T) {
	styles := func(e *emulator) bool {
		e.shows("? keys  q quits")
		seen := map[vt.Style]bool{}
		for y := range 24 {
			for x := range 80 {
				if cell := e.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}); cell.C != "" && cell.C != " " {
					seen[cell.S] = true
				}
			}
		}
		return len(seen) > 1
	}
	assert.True(t, styles(emulate(t, &Terminal{Color: true}, scenes.Contended())))
	assert.False(t, styles(emulate(t, &Terminal{}, scenes.Contended())))
}
