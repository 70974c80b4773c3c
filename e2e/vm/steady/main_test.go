package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// reports works for so many tenths and gives what it said.
func reports(t *testing.T, w work, tenths int) []done {
	t.Helper()
	r, out := io.Pipe()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- errors.Join(w.run(out, stop), out.Close()) }()
	var all []done
	for in := bufio.NewScanner(r); in.Scan(); {
		var d done
		require.NoError(t, json.Unmarshal(in.Bytes(), &d), in.Text())
		all = append(all, d)
		if len(all) == tenths {
			close(stop)
		}
	}
	require.NoError(t, <-ended)
	require.GreaterOrEqual(t, len(all), tenths)
	return all
}

// onDisk is a file where direct IO works, and reaches a disk: tests write into memory
// elsewhere.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "steady-") //nolint:usetesting // t.TempDir may be in memory
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	if st.Type == unix.TMPFS_MAGIC {
		t.Skip("needs /var/tmp on a disk")
	}
	file := filepath.Join(dir, "work")
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		t.Skip("needs direct IO in /var/tmp")
	}
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	return file
}

func TestSteadySameWorkEachSecond(t *testing.T) {
	all := reports(t, work{file: onDisk(t), write: 3, read: 1}, 21)
	for i := 10; i < len(all); i++ {
		assert.Equal(t, uint64(3<<20), all[i].Written-all[i-10].Written, "second up to tenth %d", i)
		assert.Equal(t, uint64(1<<20), all[i].Read-all[i-10].Read, "second up to tenth %d", i)
	}
}

func TestSteadyReportsKernelCounts(t *testing.T) {
	counted := func() (written, read, cpu uint64) {
		b, err := os.ReadFile("/proc/self/io")
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch name {
			case "write_bytes":
				require.NoError(t, json.Unmarshal([]byte(value), &written))
			case "read_bytes":
				require.NoError(t, json.Unmarshal([]byte(value), &read))
			}
		}
		used, err := usedCPU()
		require.NoError(t, err)
		return written, read, uint64(used)
	}
	file := onDisk(t)
	w0, r0, c0 := counted()
	all := reports(t, work{file: file, write: 2, read: 4, cpu: 200, memory: 8}, 11)
	w1, r1, c1 := counted()
	last := all[len(all)-1]
	// The file that it makes first is counted too, and its name.
	assert.InDelta(t, fileSize+last.Written, w1-w0, request/2)
	assert.InDelta(t, last.Read, r1-r0, request/2)
	assert.GreaterOrEqual(t, c1-c0, uint64(11*20*time.Millisecond))
}

func TestSteadyFileError(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none", "work")
	err := work{file: none}.run(io.Discard, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, none)
}
