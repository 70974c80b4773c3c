package slow

import (
	"testing"
	"time"
)

func TestQuick(t *testing.T) {}
func TestSlow(t *testing.T)  { t.Log("starting"); time.Sleep(10 * time.Second) }
func TestPar1(t *testing.T)  { t.Parallel(); time.Sleep(10 * time.Second) }
