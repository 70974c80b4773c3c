package history

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
)

// The file is magic, each series, kindEnd, and the SHA-256 of all that. Numbers are
// varints, texts and blocks have their length before them.
const magic = "plimsoll history 1\n"

// maxFileBytes is the most that is read: a file of the largest store has less.
const maxFileBytes = 2 * maxBytes

// maxSeries in a file: each takes some bytes of maxBytes, or has a bound of its own.
const maxSeries = 2*maxBytes/seriesOverhead + 1000

// Prepare takes what is kept now; save writes it later, while the store goes on.
func (s *Store) Prepare() (save func(io.Writer) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]series, 0, len(s.all))
	for _, one := range s.all {
		c := *one
		c.fine.blocks, c.day.blocks = slices.Clone(c.fine.blocks), slices.Clone(c.day.blocks)
		all = append(all, c)
	}
	return func(w io.Writer) error { return write(w, all) }
}

func write(to io.Writer, all []series) error {
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 64<<10)
	e := encoder{w: w}
	_, _ = w.WriteString(magic) // bufio keeps the first error for Flush
	for i := range all {
		e.series(&all[i])
	}
	e.number(int64(kindEnd))
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

// encoder writes to a bufio.Writer, which keeps the first error.
type encoder struct {
	w   *bufio.Writer
	buf []byte
}

func (e *encoder) number(n int64) {
	e.buf = binary.AppendVarint(e.buf[:0], n)
	_, _ = e.w.Write(e.buf)
}

func (e *encoder) bytes(b []byte) {
	e.number(int64(len(b)))
	_, _ = e.w.Write(b)
}

func (e *encoder) series(s *series) {
	e.number(int64(s.kind))
	for _, text := range []string{s.name, s.title, s.pod, s.resource, s.unit} {
		e.bytes([]byte(text))
	}
	e.number(int64(indicator(s.perWorkload)))
	e.number(s.seen)
	for _, t := range []track{s.fine, s.day} {
		e.number(int64(len(t.blocks)))
		for _, b := range t.blocks {
			e.number(b.first)
			e.bytes(b.rows)
		}
	}
}

func indicator(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Load reads what an earlier agent saved. With any error the store stays empty. It must
// come before the first Add.
func (s *Store) Load(from io.Reader) error {
	sum := sha256.New()
	d := decoder{r: bufio.NewReaderSize(io.LimitReader(from, maxFileBytes), 64<<10), sum: sum}
	all, err := d.all()
	if err != nil {
		return err
	}
	is, want := make([]byte, sum.Size()), sum.Sum(nil)
	if _, err := io.ReadFull(d.r, is); err != nil || !bytes.Equal(is, want) {
		return errors.New("checksum mismatch")
	}
	s.mu.Lock() // not while the disk is read, which may hang
	defer s.mu.Unlock()
	for _, one := range all {
		if s.find(one.kind, one.name) != nil {
			return s.empty(fmt.Errorf("%q is there twice", one.name))
		}
		s.insert(one)
		s.step = max(s.step, one.seen)
	}
	return nil
}

func (s *Store) empty(err error) error {
	s.all, s.byName, s.step = nil, [kindEnd]map[string]*series{}, 0
	return err
}

// decoder reads what encoder wrote, and checks all of it.
type decoder struct {
	r   *bufio.Reader
	sum hash.Hash
	err error // the first
}

var errCut = errors.New("it ends too early, or is too large")

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// ReadByte is for binary.ReadVarint.
func (d *decoder) ReadByte() (byte, error) {
	b, err := d.r.ReadByte()
	if err == nil {
		d.sum.Write([]byte{b})
	}
	return b, err
}

func (d *decoder) number(least, most int64) int64 {
	if d.err != nil {
		return least
	}
	n, err := binary.ReadVarint(d)
	switch {
	case err != nil:
		d.fail(errCut)
	case n < least || n > most:
		d.fail(fmt.Errorf("a number is %d, which is not from %d to %d", n, least, most))
	default:
		return n
	}
	return least
}

func (d *decoder) bytes(most int) []byte {
	b := make([]byte, d.number(0, int64(most)))
	if d.err != nil {
		return nil
	}
	if _, err := io.ReadFull(d.r, b); err != nil {
		d.fail(errCut)
		return nil
	}
	d.sum.Write(b)
	return b
}

func (d *decoder) all() ([]*series, error) {
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(d.r, head); err != nil || string(head) != magic {
		return nil, errors.New("it is no history, or of another version")
	}
	d.sum.Write(head)
	var all []*series
	for {
		k := kind(d.number(int64(kindNode), int64(kindEnd)))
		switch {
		case d.err != nil:
			return nil, d.err
		case k == kindEnd:
			return all, nil
		case len(all) == maxSeries:
			return nil, fmt.Errorf("it has more than %d names", maxSeries)
		}
		all = append(all, d.series(k))
	}
}

// maxStep is after the year 5000, in fine steps.
const maxStep = 10_000_000_000

func (d *decoder) series(k kind) *series {
	s := newSeries(k, string(d.bytes(2*maxName+1)))
	for _, text := range []*string{&s.title, &s.pod, &s.resource, &s.unit} {
		*text = string(d.bytes(maxName))
	}
	s.perWorkload = d.number(0, 1) == 1
	s.seen = d.number(-maxStep, maxStep)
	d.track(&s.fine, fineBlocks)
	d.track(&s.day, dayBlocks)
	return s
}

func (d *decoder) track(t *track, most int) {
	n := d.number(0, int64(most))
	for range n {
		first := d.number(-maxStep, maxStep)
		t.blocks = append(t.blocks, block{first, d.bytes(blockSteps * maxRowBytes(t.columns))})
		if d.err != nil {
			return
		}
	}
	if err := t.resume(); err != nil {
		d.fail(err)
	}
}
