package main

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"time"
)

// packed is a file of an archive.
type packed struct {
	name, path string
	mode       int64
}

// archive packs files into a compressed tar. Owner, times and order are those given,
// so that the same files give the same bytes.
func archive(path string, created int64, files []packed) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, file := range files {
		content, err := os.ReadFile(file.path)
		if err != nil {
			return err
		}
		head := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(content)), ModTime: time.Unix(created, 0).UTC(), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(head); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	for _, close := range []func() error{w.Close, z.Close, f.Close} {
		if err := close(); err != nil {
			return err
		}
	}
	return nil
}
