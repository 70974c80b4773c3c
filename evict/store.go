package evict

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Store keeps the Memory in a file, whole or not at all.
type Store struct {
	// Path of the file; its directory is made when it is missing.
	Path string
}

// stored is the file: the memory, and a sum over its bytes.
type stored struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Memory  json.RawMessage `json:"memory"`
}

// storeVersion is raised when an older program would misread the file.
const storeVersion = 1

// ErrNoMemory says that nothing was kept yet.
var ErrNoMemory = errors.New("no memory of an earlier agent")

// Load reads what was kept. After any error the Memory is empty, and nothing
// is known of what an agent before did.
func (s Store) Load() (Memory, error) {
	b, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Memory{}, ErrNoMemory
	}
	if err != nil {
		return Memory{}, fmt.Errorf("state: %w", err)
	}
	var f stored
	if err := json.Unmarshal(b, &f); err != nil {
		return Memory{}, fmt.Errorf("state: %s: %w", s.Path, err)
	}
	if f.Version != storeVersion {
		return Memory{}, fmt.Errorf("state: %s: version %d, this program reads %d", s.Path, f.Version, storeVersion)
	}
	if sum(f.Memory) != f.SHA256 {
		return Memory{}, fmt.Errorf("state: %s: its checksum is wrong", s.Path)
	}
	var m Memory
	if err := json.Unmarshal(f.Memory, &m); err != nil {
		return Memory{}, fmt.Errorf("state: %s: %w", s.Path, err)
	}
	return m, nil
}

// Save keeps the memory; when it returns nil, a crash of the machine does not
// lose it.
func (s Store) Save(m Memory) error {
	memory, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	b, err := json.Marshal(stored{Version: storeVersion, SHA256: sum(memory), Memory: memory})
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	dir := filepath.Dir(s.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	// One name, so that a killed agent leaves one such file behind at most.
	half := s.Path + ".half"
	f, err := os.OpenFile(half, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = cmp.Or(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(half, s.Path)
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
