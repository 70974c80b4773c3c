package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"
)

//go:embed testdata/v2-pod.txtar
var recordedPod []byte

// The names in the recording.
const (
	recordedAbove = "kubepods/burstable/"
	recordedUID   = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
)

// tree is a RECORDED cgroup v2, of which there is one pod, set up as often as
// wanted on a file system in memory, with other numbers in each.
type tree struct {
	root string
	// where says what kind of file system it lies on.
	where string
	pods  []string // their cgroups, such as /kubepods/burstable/pod…
	above []living // of the cgroups above the pods
	files [][]living
	now   int // how often they were changed
}

// living is a file whose numbers grow.
type living struct {
	path  string
	parts []string // of text, with a number after each but the last
	base  []uint64
}

// newTree sets the recording up for n pods, below a new directory of dir.
func newTree(n int) (t *tree, err error) {
	at, where := memoryDir()
	root, err := os.MkdirTemp(at, "plimsoll-bench-")
	if err != nil {
		return nil, err
	}
	t = &tree{root: root, where: where, files: make([][]living, n)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("recorded tree: %w", err), t.Close())
		}
	}()
	// What a hierarchy of v2 is known by.
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu io memory pids\n"), 0o644); err != nil {
		return t, err
	}
	for i := range n {
		t.pods = append(t.pods, "/"+recordedAbove+"pod"+podUID(i))
	}
	for _, f := range txtar.Parse(recordedPod).Files {
		if err := t.addFile(f); err != nil {
			return t, err
		}
	}
	return t, t.addProcs()
}

// addProcs gives every cgroup its list of processes, empty where none was
// recorded: it is how one that is there is told from one that is gone.
func (t *tree) addProcs() error {
	return filepath.WalkDir(t.root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		f, err := os.OpenFile(filepath.Join(path, "cgroup.procs"), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// podUID of the i-th pod.
func podUID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// memoryDir is a directory whose files are in memory, where there is one.
func memoryDir() (dir, kind string) {
	const tmpfs = 0x01021994 // linux/magic.h
	for _, dir := range []string{"/dev/shm", os.TempDir()} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == tmpfs && unix.Access(dir, unix.W_OK) == nil {
			return dir, "tmpfs"
		}
	}
	return os.TempDir(), "disk"
}

// addFile puts a recorded file where it belongs: once above the pods, else in
// every pod.
func (t *tree) addFile(f txtar.File) error {
	if !strings.Contains(f.Name, recordedUID) {
		l, err := t.write(f.Name, string(f.Data), 0)
		if l != nil {
			t.above = append(t.above, *l)
		}
		return err
	}
	for i := range t.pods {
		l, err := t.write(strings.Replace(f.Name, recordedUID, podUID(i), 1), string(f.Data), i)
		if err != nil {
			return err
		}
		if l != nil {
			t.files[i] = append(t.files[i], *l)
		}
	}
	return nil
}

// write makes one file; l is nil for one that does not change.
func (t *tree) write(name, text string, i int) (l *living, err error) {
	path := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	parts, base := numbers(filepath.Base(name), text)
	if len(base) == 0 {
		return nil, os.WriteFile(path, []byte(text), 0o644)
	}
	for j := range base {
		if base[j] > 0 {
			base[j] += uint64(i) * 1009
		}
	}
	l = &living{path, parts, base}
	return l, l.at(0)
}

// numbers takes a text apart at the numbers that grow while a pod works; those
// that are 0 stay so.
func numbers(file, text string) (parts []string, values []uint64) {
	pattern, grows := growing()[file]
	if !grows {
		return nil, nil
	}
	at := 0
	for _, m := range pattern.FindAllStringSubmatchIndex(text, -1) {
		n, err := strconv.ParseUint(text[m[2]:m[3]], 10, 64)
		if err != nil || n == 0 {
			continue
		}
		parts, values = append(parts, text[at:m[2]]), append(values, n)
		at = m[3]
	}
	return append(parts, text[at:]), values
}

// growing are the files of a cgroup that change while it works, and where
// their numbers stand.
func growing() map[string]*regexp.Regexp {
	total := regexp.MustCompile(`total=(\d+)`)
	return map[string]*regexp.Regexp{
		"cpu.stat":        regexp.MustCompile(`(?m)^\w+_usec (\d+)$`),
		"memory.current":  regexp.MustCompile(`^(\d+)$`),
		"memory.stat":     regexp.MustCompile(`(?m)^(?:inactive_file|pg\w+|workingset_\w+) (\d+)$`),
		"memory.events":   regexp.MustCompile(`(?m)^high (\d+)$`),
		"io.stat":         regexp.MustCompile(`[rw](?:bytes|ios)=(\d+)`),
		"memory.pressure": total,
		"cpu.pressure":    total,
		"io.pressure":     total,
	}
}

// at writes the file as it is after so many changes. It never becomes shorter.
func (l *living) at(now int) error {
	var text []byte
	for i, n := range l.base {
		text = append(text, l.parts[i]...)
		text = strconv.AppendUint(text, n+uint64(now)*997, 10)
	}
	// Not kept open: the readers need the descriptors.
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, l.parts[len(l.base)]...))
	return errors.Join(err, file.Close())
}

// tick lets the numbers of every n-th pod grow, and of the cgroups above.
func (t *tree) tick(every int) error {
	t.now++
	for i := range t.above {
		if err := t.above[i].at(t.now); err != nil {
			return err
		}
	}
	for i := 0; i < len(t.files); i += every {
		for j := range t.files[i] {
			if err := t.files[i][j].at(t.now); err != nil {
				return err
			}
		}
	}
	return nil
}

// dirs are all directories of the tree.
func (t *tree) dirs() []string { return dirsBelow(t.root) }

// five are the files of the i-th pod that the goal names.
func (t *tree) five(i int) []string {
	var all []string
	for _, f := range []string{"cpu.stat", "memory.current", "memory.pressure", "io.stat", "io.pressure"} {
		all = append(all, filepath.Join(t.root, t.pods[i], f))
	}
	return all
}

// fiveOfAll are those of every pod.
func (t *tree) fiveOfAll() []string { return place{pods: len(t.pods), five: t.five}.fiveOfAll() }

// Close removes the tree.
func (t *tree) Close() error { return os.RemoveAll(t.root) }
