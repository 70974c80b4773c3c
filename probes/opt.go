package probes

import "encoding/json"

// Opt is a measurement that may be absent. Absent is not zero: the only way
// to the value is Get, which also says whether there is one. The zero Opt is
// absent. In JSON an absent Opt is left out (tag its field omitzero); the
// reason stands in the Absent of the struct that holds it.
type Opt[T any] struct {
	value T
	ok    bool
}

// Some is a measurement that was made.
func Some[T any](v T) Opt[T] { return Opt[T]{value: v, ok: true} }

// Get returns the value and whether there is one.
func (o Opt[T]) Get() (T, bool) { return o.value, o.ok }

// IsZero reports whether the measurement is absent; encoding/json asks it for
// fields tagged omitzero.
func (o Opt[T]) IsZero() bool { return !o.ok }

// MarshalJSON writes the bare value, and null where there is none.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.ok {
		return []byte("null"), nil
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*o = Opt[T]{}
		return nil
	}
	if err := json.Unmarshal(b, &o.value); err != nil {
		return err
	}
	o.ok = true
	return nil
}

// Absent keeps, for each measurement that is not there, the reason why: the
// key is the measurement's JSON name (or a group of them, such as "rates").
// A nil Absent has no entries; Because makes the map.
type Absent map[string]string

// Because records why what is absent.
func (a *Absent) Because(what, why string) {
	if *a == nil {
		*a = Absent{}
	}
	(*a)[what] = why
}
