package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// claimTime is how long after it was made a directory is claimed, by far.
const claimTime = time.Minute

// claim marks a directory as in use by this process, until the file is closed or
// the process has ended, however it did.
func claim(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use: %w", dir, err)
	}
	return f, nil
}

// abandoned are the directories of that name that nobody claims any more: those
// of processes that were killed.
func abandoned(pattern string) []string {
	dirs, _ := filepath.Glob(pattern) // the pattern is right
	var all []string
	for _, dir := range dirs {
		stat, err := os.Stat(dir)
		if err != nil || time.Since(stat.ModTime()) < claimTime {
			continue
		}
		if f, err := claim(dir); err == nil {
			_ = f.Close()
			all = append(all, dir)
		}
	}
	return all
}
