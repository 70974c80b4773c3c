package snapshot

import "encoding/json"

// Opt is a measurement that may be absent, which is not zero: Get is the only
// way to the value and reports whether there is one. The zero Opt is absent.
// JSON leaves out an absent Opt (tag its field omitzero); the Absent of the
// struct that holds it has the reason.
type Opt[T any] struct {
	value T
	ok    bool
}

// Some returns an Opt with a value.
func Some[T any](v T) Opt[T] { return Opt[T]{value: v, ok: true} }

// Get returns the value and whether there is one.
func (o Opt[T]) Get() (T, bool) { return o.value, o.ok }

// IsZero reports whether the measurement is absent; encoding/json calls it for
// fields tagged omitzero.
func (o Opt[T]) IsZero() bool { return !o.ok }

// MarshalJSON writes the bare value, or null if there is none.
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

// Absent has the reason for each measurement without a value: the key is the
// measurement's JSON name, or a group of them such as "rates". Because may be
// called on a nil Absent and makes the map.
type Absent map[string]string

// Because records the reason why a measurement is absent.
func (a *Absent) Because(what, why string) {
	if *a == nil {
		*a = Absent{}
	}
	(*a)[what] = why
}
