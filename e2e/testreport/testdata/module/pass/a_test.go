package pass

import "testing"

func TestAdds(t *testing.T) { t.Log("quiet") }
func TestSubs(t *testing.T) { t.Run("one", func(t *testing.T) {}) }
