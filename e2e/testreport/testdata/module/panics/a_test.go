package panics

import "testing"

func TestPanics(t *testing.T) { t.Log("before"); var m map[string]int; m["a"] = 1 }
func TestNever(t *testing.T)  {}
