package process

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// unread is a pipe that nobody reads before read is closed.
type unread struct {
	read chan struct{}
	bytes.Buffer
}

func (u *unread) Write(b []byte) (int, error) {
	<-u.read
	return u.Buffer.Write(b)
}

func TestLogNotReadDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, start := &unread{read: make(chan struct{})}, time.Now()
		var log *slog.Logger
		queue := NewLogQueue(func(lines int) { log.Warn("lost", "lines", lines) })
		log = slog.New(slog.NewTextHandler(queue.Writer(out), nil))
		for i := range maxLogLines + 11 {
			log.Info("line", "number", i)
			synctest.Wait() // the first is under way
		}
		assert.Equal(t, start, time.Now())
		queue.Flush()
		assert.Equal(t, logFlush, time.Since(start), "the end of the program waits for it")
		close(out.read)
		queue.Flush()
		text := out.String()
		assert.Equal(t, maxLogLines+2, strings.Count(text, "\n"))
		assert.Contains(t, text, `msg=lost lines=10`)
		assert.Less(t, strings.Index(text, "number=0\n"), strings.Index(text, "number=11\n"))
		assert.Contains(t, text, fmt.Sprintf("number=%d\n", maxLogLines+10))
	})
}
