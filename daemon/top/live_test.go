package top

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
)

const address = "http://127.0.0.1:9773/"

func sized(width, height int) func() (int, int, error) {
	return func() (int, int, error) { return width, height, nil }
}

func TestLiveWithoutTerminalChangesOnly(t *testing.T) {
	var out strings.Builder
	l := &Live{Out: &out, Page: address}
	l.Show(nil)
	l.Show(scenes.Calm())
	l.Show(scenes.Calm())
	l.Show(scenes.OwnLimit())
	l.Close()
	assert.Equal(t, stamp+"node-a: No pressure; standalone mode: evictions disabled; status page "+address+"\n"+
		stamp+"cache.service is at its own memory limit: its own pressure, not the node's (memory stall 83.0 %, limit hit 1200 times)\n", out.String())
}

// terminal is as much of one as a Live uses.
type terminal struct {
	cells           [][]rune
	row, column     int
	cursor, wrapped bool
}

// screen is what a terminal shows after what was written to it.
func screen(t *testing.T, written string, width, height int) *terminal {
	t.Helper()
	s := &terminal{cells: make([][]rune, height), cursor: true, wrapped: true}
	for i := range s.cells {
		s.cells[i] = []rune(strings.Repeat(" ", width))
	}
	for _, part := range regexp.MustCompile("\x1b\\[[^A-Za-z]*[A-Za-z]|\n|\r|[^\x1b\n\r]+").FindAllString(written, -1) {
		switch {
		case part == "\n":
			s.row = min(height-1, s.row+1)
		case part == "\r":
			s.column = 0
		case part[0] == '\x1b':
			require.True(t, s.obey(part[2:]), "no other command is used: %q", part)
		default:
			s.write(part)
		}
	}
	return s
}

// write leaves the cursor on the last column when that was written.
func (s *terminal) write(text string) {
	for _, r := range text {
		s.cells[s.row][s.column] = r
		s.column = min(s.column+1, len(s.cells[s.row])-1)
	}
}

func (s *terminal) obey(command string) bool {
	switch command {
	case "H":
		s.row, s.column = 0, 0
	case fmt.Sprintf("%d;1H", len(s.cells)):
		s.row, s.column = len(s.cells)-1, 0
	case "?25l", "?25h":
		s.cursor = command == "?25h"
	case "?7l", "?7h":
		s.wrapped = command == "?7h"
	case "J":
		s.clearFrom(s.row, s.column)
		for row := s.row + 1; row < len(s.cells); row++ {
			s.clearFrom(row, 0)
		}
	case "K":
		s.clearFrom(s.row, s.column)
	default:
		return false
	}
	return true
}

func (s *terminal) clearFrom(row, column int) {
	for i := column; i < len(s.cells[row]); i++ {
		s.cells[row][i] = ' '
	}
}

func (s *terminal) lines() []string {
	var list []string
	for _, row := range s.cells {
		list = append(list, strings.TrimRight(string(row), " "))
	}
	return list
}

func TestLiveFrameReplacesLast(t *testing.T) {
	for _, width := range []int{80, 32} {
		var out strings.Builder
		l := &Live{Out: &out, Page: address, Size: sized(width, 24)}
		small := scenes.Calm()
		small.Snapshot.Workloads = small.Snapshot.Workloads[:1]
		l.Show(scenes.MemoryHard())
		l.Show(small)
		frame := strings.Split(frameOf(small, width, 23, false), "\n")
		want := make([]string, 24)
		for i, line := range frame {
			want[i] = strings.TrimRight(line, " ")
		}
		var last strings.Builder
		line{{"status page: " + address + "  ·  Ctrl-C quits", plain}}.write(&last, width, false)
		want[23] = last.String()
		assert.Equal(t, want, screen(t, out.String(), width, 24).lines())
	}
}

func TestLiveRestoresTerminal(t *testing.T) {
	var out strings.Builder
	l := &Live{Out: &out, Size: sized(80, 24)}
	l.Show(scenes.Calm())
	shown := screen(t, out.String(), 80, 24)
	assert.False(t, shown.cursor)
	assert.False(t, shown.wrapped)
	l.Close()
	shown = screen(t, out.String(), 80, 24)
	assert.True(t, shown.cursor)
	assert.True(t, shown.wrapped)
	assert.True(t, strings.HasSuffix(out.String(), "\n"), "the prompt comes below the last frame")
}

func TestLiveUntouchedTerminal(t *testing.T) {
	var out strings.Builder
	l := &Live{Out: &out, Size: sized(80, 24)}
	l.Close()
	assert.Empty(t, out.String())
	l.Show(scenes.Calm())
	l.Close()
	written := out.Len()
	l.Close()
	assert.Equal(t, written, out.Len(), "it is given back once")
}

func TestLiveUnknownTerminalSize(t *testing.T) {
	for _, size := range []func() (int, int, error){sized(0, 0), func() (int, int, error) { return 0, 0, errors.New("no") }} {
		var out strings.Builder
		l := &Live{Out: &out, Size: size}
		l.Show(scenes.Calm())
		assert.Contains(t, out.String(), "\x1b[24;1H")
		assert.Contains(t, out.String(), "12:02:05 UTC")
	}
}

func TestLiveFollowsResize(t *testing.T) {
	var out strings.Builder
	height := 24
	l := &Live{Out: &out, Size: func() (int, int, error) { return 80, height, nil }}
	l.Show(scenes.Calm())
	height = 50
	out.Reset()
	l.Show(scenes.Calm())
	assert.Contains(t, out.String(), "\x1b[50;1H")
	assert.NotContains(t, out.String(), "\x1b[24;1H")
}
