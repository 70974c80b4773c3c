package flaky

import (
	"os"
	"testing"
)

func TestSteady(t *testing.T) {}

// The first run leaves a mark for the second.
func TestFirstTime(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		if os.Mkdir(os.Getenv("MARK"), 0o700) == nil {
			t.Fatal("the machine was busy")
		}
	})
}

func TestAlways(t *testing.T) { t.Fatal("broken") }
