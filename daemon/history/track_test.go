package history

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rowsOf is everything in a track.
func rowsOf(t *track) map[int64][]uint16 {
	all := map[int64][]uint16{}
	t.rows(func(step int64, row []uint16) { all[step] = slices.Clone(row) })
	return all
}

// FuzzTrack holds a track against a map of all rows.
func FuzzTrack(f *testing.F) {
	f.Add([]byte{1, 10, 20, 30, 1, 10, 20, 31, 70, 0, 0, 1, 1, 255, 255, 255}, int64(600))
	f.Add([]byte{}, int64(0))
	f.Add(bytes.Repeat([]byte{1, 9, 9, 9}, 200), int64(-61))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 59, 0, 7, 0}, 9), int64(1_000_000_000))
	f.Fuzz(func(t *testing.T, ops []byte, step int64) {
		const columns = 3
		if step > maxStep || step < -maxStep {
			return
		}
		track, model := track{columns: columns}, map[int64][]uint16{}
		for ; len(ops) > columns; ops = ops[columns+1:] {
			switch op := ops[0]; {
			case op < 200:
				step += int64(op) - 2 // sometimes back
			case op < 240:
				track.dropBefore(step - int64(op))
				maps.DeleteFunc(model, func(at int64, _ []uint16) bool { return at-floorMod(at)+blockSteps <= step-int64(op) })
				continue
			default:
				step -= int64(op)
				track.dropAfter(step)
				maps.DeleteFunc(model, func(at int64, _ []uint16) bool { return at > step })
			}
			row := []uint16{uint16(ops[1]), min(uint16(ops[2])<<5, maxCode), min(uint16(ops[3])*17, maxCode)}
			taken := track.end()
			track.add(step, row)
			if len(model) == 0 || step > slices.Max(slices.Collect(maps.Keys(model))) && step >= taken {
				model[step] = row
				maps.DeleteFunc(model, func(_ int64, row []uint16) bool { return row[0]|row[1]|row[2] == unknown })
			}
			require.Equal(t, model, rowsOf(&track))
		}
		again := track
		again.last, again.next = nil, 0
		require.NoError(t, again.resume())
		track.add(step+3, []uint16{1, 2, 3})
		again.add(step+3, []uint16{1, 2, 3})
		require.Equal(t, rowsOf(&track), rowsOf(&again), "a loaded track goes on as the saved one would")
	})
}

// A clock that is set back costs nothing of the past.
func TestTrackDropAfter(t *testing.T) {
	track, want := track{columns: 2}, map[int64][]uint16{}
	for step := range int64(3 * blockSteps / 2) {
		row := []uint16{uint16(1 + step), 7}
		track.add(step, row)
		if want[step] = row; step > blockSteps+5 {
			delete(want, step)
		}
	}
	track.dropAfter(blockSteps + 5)
	require.Equal(t, want, rowsOf(&track))
	want[blockSteps+6] = []uint16{3, 7}
	track.add(blockSteps+6, []uint16{3, 7})
	require.Equal(t, want, rowsOf(&track), "it goes on")
}

// FuzzBlock: what is in a file may be anything.
func FuzzBlock(f *testing.F) {
	f.Add([]byte{6, 4, 6, 0, 3, 2, 1}, 2)
	f.Add(binary.AppendUvarint(nil, 1<<40), 14)
	f.Add([]byte{0xff}, 1)
	f.Fuzz(func(t *testing.T, rows []byte, columns int) {
		if columns < 1 || columns > 2*maxColumns {
			return
		}
		seen := int64(-1)
		err := block{first: 120, rows: rows}.read(make([]uint16, columns), func(step int64, row []uint16) {
			require.Greater(t, step, seen)
			seen = step
			require.GreaterOrEqual(t, step, int64(120))
			require.Less(t, step, int64(120+blockSteps))
			for _, code := range row {
				require.LessOrEqual(t, code, maxCode)
			}
		})
		if err != nil {
			require.ErrorIs(t, err, errBlock)
		}
	})
}

func TestTrackSize(t *testing.T) {
	track := track{columns: 10}
	for step := range int64(blockSteps) {
		track.add(step, []uint16{1, 700, 1, 1, 1, 1, 700, 1, 1, 1})
	}
	assert.Less(t, len(track.blocks[0].rows), blockSteps+20, "a step in which nothing changes is a byte")
	row := make([]uint16, 10)
	for step := range int64(2 * blockSteps) {
		for i := range row {
			row[i] = maxCode * uint16(step%2)
		}
		row[0] = maxCode
		track.add(blockSteps+step, row)
		require.LessOrEqual(t, len(track.blocks[len(track.blocks)-1].rows), blockSteps*maxRowBytes(10))
	}
}
