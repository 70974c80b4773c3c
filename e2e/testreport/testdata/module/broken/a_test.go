package broken

import "testing"

func TestX(t *testing.T) { t.Log(noSuchFunction(), anotherOne()) }
