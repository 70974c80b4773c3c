package top

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// Terminal lets a user walk through states on a terminal. Draw, keys and sizes are of
// a Screen; what belongs to the terminal is here.
type Terminal struct {
	// Screen of the library; tests have one without a terminal.
	Screen tcell.Screen
	Color  bool
	// State is asked for the newest one, every Period.
	State  func(context.Context) (*view.State, error)
	Period time.Duration
}

// answer to a question for a state.
type answer struct {
	state    *view.State
	err      error
	panicked string // with the stack; empty: it did not
}

// Run shows states, beginning with first, until the user quits or ctx ends. The
// terminal is restored also after a panic.
func (t *Terminal) Run(ctx context.Context, first *view.State) error {
	if err := t.Screen.Init(); err != nil {
		return err
	}
	defer t.Screen.Fini()
	t.Screen.HideCursor()
	for sign, ascii := range map[rune]string{'–': "-", '…': "~", 'µ': "u"} { // in a locale without UTF-8
		t.Screen.RegisterRuneFallback(sign, ascii)
	}
	// A question may wait for a kernel or a network that hangs: leaving does not wait
	// for its end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer)
	go t.ask(ctx, answers)
	clock := time.NewTicker(time.Second) // ages grow
	defer clock.Stop()
	width, height := t.size()
	screen, quit := NewScreen(first, t.Period, time.Now(), width, height), false
	for !quit {
		t.draw(screen)
		select {
		case <-ctx.Done():
			return nil
		case a := <-answers:
			screen = a.onto(screen, time.Now())
		case now := <-clock.C:
			screen = screen.At(now)
		case event, open := <-t.Screen.EventQ():
			if !open {
				return nil
			}
			var err error
			if screen, quit, err = t.handle(screen, event); err != nil {
				return err
			}
		}
	}
	return nil
}

// size of the terminal as the kernel has it. An event has what the terminal answered,
// and tmux 3.3 answers with width and height exchanged.
func (t *Terminal) size() (width, height int) {
	if tty, ok := t.Screen.Tty(); ok {
		if size, err := tty.WindowSize(); err == nil {
			return size.Width, size.Height
		}
	}
	return t.Screen.Size()
}

// onto puts an answer on the screen. A panic of the question becomes one of the
// goroutine that restores the terminal.
func (a answer) onto(s Screen, now time.Time) Screen {
	switch {
	case a.panicked != "":
		panic(a.panicked)
	case a.err != nil:
		return s.Failed(a.err.Error(), now)
	}
	return s.Answered(a.state, now)
}

// ask for one state after the other.
func (t *Terminal) ask(ctx context.Context, to chan<- answer) {
	ticker := time.NewTicker(t.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case <-ctx.Done():
			return
		case to <- t.answer(ctx):
		}
	}
}

func (t *Terminal) answer(ctx context.Context) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{panicked: view.Printable(fmt.Sprint(p)) + "\n\n" + string(debug.Stack())} // it may have a name
		}
	}()
	a.state, a.err = t.State(ctx)
	return a
}

// handle an event of the terminal.
func (t *Terminal) handle(s Screen, event tcell.Event) (next Screen, quit bool, err error) {
	switch e := event.(type) {
	case *tcell.EventResize:
		return s.Resized(t.size()), false, nil
	case *tcell.EventKey:
		if e.Key() == tcell.KeyCtrlL { // another program wrote on the terminal
			t.Screen.Sync()
		}
		next, quit = s.Pressed(keyOf(e))
		return next, quit, nil
	case *tcell.EventError:
		return s, true, e
	}
	return s, false, nil
}

// keyOf an event; empty for one that means nothing here.
func keyOf(e *tcell.EventKey) Key {
	if e.Key() == tcell.KeyRune && e.Modifiers() == tcell.ModNone {
		return Key(e.Str())
	}
	return map[tcell.Key]Key{
		tcell.KeyUp: KeyUp, tcell.KeyDown: KeyDown, tcell.KeyLeft: KeyLeft, tcell.KeyRight: KeyRight,
		tcell.KeyPgUp: KeyPageUp, tcell.KeyPgDn: KeyPageDown, tcell.KeyHome: KeyHome, tcell.KeyEnd: KeyEnd,
		tcell.KeyEnter: KeyEnter, tcell.KeyEsc: KeyEsc, tcell.KeyTab: KeyTab, tcell.KeyBacktab: KeyBackTab,
		tcell.KeyBackspace: KeyBackspace, tcell.KeyBackspace2: KeyBackspace, tcell.KeyCtrlC: KeyInterrupt,
	}[e.Key()]
}

func (t *Terminal) draw(s Screen) {
	t.Screen.Clear()
	for y, l := range s.lines() {
		x := 0
		for _, part := range l {
			x = t.put(x, y, part)
		}
	}
	t.Screen.Show()
}

// put a text and return the column after it. A mark without a letter before it has no
// column, and is left out.
func (t *Terminal) put(x, y int, s span) int {
	rest, style := s.text, t.style(s.style)
	for rest != "" {
		after, width := t.Screen.Put(x, y, rest, style)
		if len(after) == len(rest) { // outside the screen
			break
		}
		rest, x = after, x+width
	}
	return x
}

func (t *Terminal) style(s style) tcell.Style {
	d := tcell.StyleDefault
	if !t.Color {
		return d
	}
	switch s {
	case bold:
		return d.Bold(true)
	case dim:
		return d.Dim(true)
	case green:
		return d.Foreground(color.Green)
	case yellow:
		return d.Foreground(color.Yellow).Bold(true)
	case red:
		return d.Foreground(color.Red).Bold(true)
	case marked:
		return d.Reverse(true)
	case plain:
	}
	return d
}
