package rungs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Read reads records, one a line; none where there is no file.
func Read(path string) ([]Record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var all []Record
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: record %d: %w", path, len(all)+1, err)
		}
		all = append(all, r)
	}
	return all, lines.Err()
}

// Append adds a record at the end.
func Append(path string, r *Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Has tells whether a cell is among the records.
func Has(all []Record, c Cell) bool {
	return slices.ContainsFunc(all, func(r Record) bool { return r.Cell == c })
}

// Quantile is the smallest value that at least the share q of them does not exceed; 0
// of none. It sorts values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, min(len(values)-1, int(q*float64(len(values))+0.999999)-1))]
}
