package history

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// The two tracks of a series. Steps are counted from 1970, so that those of two agents
// are the same.
const (
	fineStep = 10 * time.Second
	dayStep  = time.Minute

	// blockSteps is how many steps a block has: ten minutes, or an hour.
	blockSteps = 60
	fineBlocks = 7  // an hour, and the one that is being filled
	dayBlocks  = 25 // a day, and the one that is being filled
)

// track is the rows of a series at one step, in blocks. Each block can be read by
// itself: what is old is dropped with its block.
type track struct {
	columns int
	blocks  []block // oldest first
	// Of the last block: its last row, and the step after it.
	last []uint16
	next int64
}

// block has the rows of blockSteps steps, each as what changed since the row before;
// before the first all is unknown. A row is
//
//	uvarint  2·(bit set of the columns that changed), then for each the difference as varint
//
// and steps without a row are
//
//	uvarint  2·(how many) + 1
//
// It is only appended to, so what a reader has of it stays as it is.
type block struct {
	first int64 // step
	rows  []byte
}

// maxRowBytes is more than a row of the widest kind takes: gap, bit set, differences.
func maxRowBytes(columns int) int { return 2 + 3 + 3*columns }

// add appends the row of a step. A step that is not after the last is ignored, and a row
// without a value is none.
func (t *track) add(step int64, row []uint16) {
	if !slices.ContainsFunc(row, func(code uint16) bool { return code != unknown }) {
		return
	}
	first := step - floorMod(step)
	if n := len(t.blocks); n == 0 || t.blocks[n-1].first < first {
		t.seal()
		t.blocks = append(t.blocks, block{first: first})
		t.next = first
		if t.last == nil {
			t.last = make([]uint16, t.columns)
		}
		clear(t.last)
	}
	if step < t.next {
		return
	}
	b := &t.blocks[len(t.blocks)-1]
	if gap := step - t.next; gap > 0 {
		b.rows = binary.AppendUvarint(b.rows, uint64(gap)<<1|1)
	}
	changed := uint64(0)
	for i, code := range row {
		if code != t.last[i] {
			changed |= 1 << i
		}
	}
	b.rows = binary.AppendUvarint(b.rows, changed<<1)
	for i, code := range row {
		if code != t.last[i] {
			b.rows = binary.AppendVarint(b.rows, int64(code)-int64(t.last[i]))
		}
	}
	copy(t.last, row)
	t.next = step + 1
}

// seal returns what the last block was given too much of.
func (t *track) seal() {
	if n := len(t.blocks); n > 0 {
		t.blocks[n-1].rows = slices.Clone(t.blocks[n-1].rows)
	}
}

// floorMod is the place of a step in its block, before 1970 too.
func floorMod(step int64) int64 { return (step%blockSteps + blockSteps) % blockSteps }

// dropBefore drops the blocks that end before or at a step.
func (t *track) dropBefore(step int64) {
	keep := slices.IndexFunc(t.blocks, func(b block) bool { return b.first+blockSteps > step })
	if keep < 0 {
		keep = len(t.blocks)
	}
	t.blocks = slices.Delete(t.blocks, 0, keep)
}

// dropAfter drops the rows after a step.
func (t *track) dropAfter(step int64) {
	whole := slices.IndexFunc(t.blocks, func(b block) bool { return b.first+blockSteps > step+1 })
	if whole < 0 || t.next <= step+1 {
		return
	}
	cut := t.blocks[whole]
	t.blocks, t.next = t.blocks[:whole:whole], min(cut.first, step+1)
	_ = cut.read(make([]uint16, t.columns), func(at int64, row []uint16) {
		if at <= step {
			t.add(at, row)
		}
	})
}

var errBlock = errors.New("not rows of a block")

// rows calls do with each row, oldest first. Values must not be kept.
func (t *track) rows(do func(step int64, values []uint16)) {
	row := make([]uint16, t.columns)
	for _, b := range t.blocks {
		clear(row)
		_ = b.read(row, do) // was made by add, or checked when it was loaded
	}
}

// read calls do with each row; row is where they are made, all unknown.
func (b block) read(row []uint16, do func(step int64, values []uint16)) error {
	at := int64(0)
	for rest := b.rows; len(rest) > 0; {
		head, n := binary.Uvarint(rest)
		if n <= 0 {
			return errBlock
		}
		rest = rest[n:]
		if head&1 == 1 {
			if head>>1 >= blockSteps {
				return errBlock
			}
			at += int64(head >> 1)
			continue
		}
		if at >= blockSteps || head>>1>>len(row) != 0 {
			return errBlock
		}
		var ok bool
		if rest, ok = applyChanges(rest, head>>1, row); !ok {
			return errBlock
		}
		do(b.first+at, row)
		at++
	}
	return nil
}

// applyChanges adds the differences at the beginning of rest to the columns in a bit
// set, and returns what is after them; not ok: they are none.
func applyChanges(rest []byte, changed uint64, row []uint16) (_ []byte, ok bool) {
	for i := range row {
		if changed>>i&1 == 0 {
			continue
		}
		by, n := binary.Varint(rest)
		code := int64(row[i]) + by
		if n <= 0 || code < 0 || code > int64(maxCode) {
			return nil, false
		}
		row[i], rest = uint16(code), rest[n:]
	}
	return rest, true
}

// resume reads the last block again, so that add can go on where a loaded track ends.
func (t *track) resume() error {
	t.last = make([]uint16, t.columns)
	for i, b := range t.blocks {
		if floorMod(b.first) != 0 || i > 0 && b.first <= t.blocks[i-1].first {
			return errBlock
		}
		clear(t.last)
		t.next = b.first
		if err := b.read(t.last, func(step int64, _ []uint16) { t.next = step + 1 }); err != nil {
			return err
		}
	}
	return nil
}

// size is what the blocks take, roughly.
func (t *track) size() int {
	size := 0
	for _, b := range t.blocks {
		size += blockOverhead + cap(b.rows)
	}
	return size
}

// end is the step after the last row; 0 without rows.
func (t *track) end() int64 {
	if len(t.blocks) == 0 {
		return 0
	}
	return t.next
}
