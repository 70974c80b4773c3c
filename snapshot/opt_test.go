package snapshot

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAbsentIsNotZero(t *testing.T) {
	var absent Opt[uint64]
	_, ok := absent.Get()
	assert.False(t, ok)
	assert.True(t, absent.IsZero())
	zero, ok := Some(uint64(0)).Get()
	assert.True(t, ok)
	assert.Zero(t, zero)
	assert.False(t, Some(uint64(0)).IsZero())
	assert.NotEqual(t, absent, Some(uint64(0)))
}

func TestOptJSON(t *testing.T) {
	b, err := json.Marshal(Stall{Some: Some(uint64(0))})
	require.NoError(t, err)
	assert.JSONEq(t, `{"someTotalMicroseconds":0}`, string(b))
	var s Stall
	require.NoError(t, json.Unmarshal(b, &s))
	assert.Equal(t, Stall{Some: Some(uint64(0))}, s)

	b, err = json.Marshal(Opt[int]{})
	require.NoError(t, err)
	assert.Equal(t, "null", string(b))
	was := Some(5)
	require.NoError(t, json.Unmarshal(b, &was))
	assert.True(t, was.IsZero(), "null takes away what was there")
}

func TestOptInvalidIsError(t *testing.T) {
	for _, odd := range []string{`"5"`, `-1`, `1.5`, `18446744073709551616`, `{}`, `[1]`, `true`} {
		var o Opt[uint64]
		require.Error(t, json.Unmarshal([]byte(odd), &o), odd)
		assert.True(t, o.IsZero(), odd)
	}
}

func TestAbsentReasonsByName(t *testing.T) {
	var a Absent
	assert.Empty(t, a["speed"], "a nil one has none")
	a.Because("speed", "unknown")
	a.Because("speed", "the link is down")
	assert.Equal(t, Absent{"speed": "the link is down"}, a)
}
