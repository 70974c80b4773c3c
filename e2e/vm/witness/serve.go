package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// service is the sufferer: each request touches memory, reads its disk, writes a line
// that must be on the disk before it is answered, and computes.
type service struct {
	pages, own []byte   // of a file, and of its own
	data       int      // file descriptor, past the page cache
	log        *os.File // appended, so that each line changes the file's size as well
	hash       []byte
}

const (
	pagesMiB = 64
	ownMiB   = 64
	dataMiB  = 32
	touched  = 32 // pages of each kind in a request
	pageSize = 4096
)

// serve answers at address with files in dir: /work does a request's work and says how
// long each part took in ms, /live answers at once.
func serve(ctx context.Context, dir, address string, hashKiB int) error {
	s, err := newService(dir, hashKiB)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/live", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("/work", func(w http.ResponseWriter, _ *http.Request) {
		parts, err := s.work()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(parts)
	})
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l)
}

func newService(dir string, hashKiB int) (*service, error) {
	s := &service{hash: make([]byte, hashKiB<<10)}
	f, err := os.Open(filepath.Join(dir, "pages"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if s.pages, err = unix.Mmap(int(f.Fd()), 0, pagesMiB<<20, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	if err := unix.Madvise(s.pages, unix.MADV_POPULATE_READ); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if err := unix.Madvise(s.pages, unix.MADV_RANDOM); err != nil {
		return nil, fmt.Errorf("advise on %s: %w", f.Name(), err)
	}
	if s.own, err = unix.Mmap(-1, 0, ownMiB<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, fmt.Errorf("take memory: %w", err)
	}
	if err := unix.Madvise(s.own, unix.MADV_POPULATE_WRITE); err != nil {
		return nil, fmt.Errorf("take memory: %w", err)
	}
	if s.data, err = unix.Open(filepath.Join(dir, "served"), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open served: %w", err)
	}
	s.log, err = os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	return s, err
}

// work is one request. The result is ms by part.
func (s *service) work() (map[string]float64, error) {
	parts := map[string]float64{}
	var failed error
	for _, p := range []struct {
		name string
		do   func() error
	}{{"memory", s.touch}, {"read", s.read}, {"fsync", s.write}, {"cpu", s.compute}} {
		begun := time.Now()
		failed = errors.Join(failed, p.do())
		parts[p.name] = milliseconds(time.Since(begun))
	}
	return parts, failed
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (s *service) touch() error {
	sum := byte(0)
	for range touched {
		sum += s.pages[rand.IntN(len(s.pages))] + s.own[rand.IntN(len(s.own))]
	}
	s.own[rand.IntN(len(s.own))] = sum
	return nil
}

func (s *service) read() error {
	b, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	_, err = unix.Pread(s.data, b, rand.Int64N(dataMiB<<20/pageSize)*pageSize)
	return err
}

func (s *service) write() error {
	if _, err := s.log.Write(make([]byte, 512)); err != nil {
		return err
	}
	return s.log.Sync()
}

func (s *service) compute() error {
	sum := sha256.Sum256(s.hash)
	if sum == [32]byte{} {
		return errors.New("a hash of zeros")
	}
	return nil
}
