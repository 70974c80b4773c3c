package fail

import "testing"

func TestAdds(t *testing.T)  { t.Log("quiet") }
func TestFails(t *testing.T) { t.Log("before"); t.Errorf("want 1\ngot 2") }
func TestSubs(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Log("silent") })
	t.Run("bad one", func(t *testing.T) { t.Fatal("sub went wrong") })
}
