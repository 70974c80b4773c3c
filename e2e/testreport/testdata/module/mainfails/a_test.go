package mainfails

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	fmt.Println("building: 10 minutes")
	m.Run()
	fmt.Fprintln(os.Stderr, "cannot tidy up")
	os.Exit(3)
}

func TestX(t *testing.T) { fmt.Print("no newline") }
