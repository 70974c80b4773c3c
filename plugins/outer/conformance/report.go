package conformance

// Result of one check.
type Result string

// The results. NotApplicable: the plugin gave no occasion, or it was not asked.
const (
	Passed        Result = "passed"
	Failed        Result = "failed"
	NotApplicable Result = "not applicable"
)

// Check is one property of a plugin, with what was seen.
type Check struct {
	Name string `json:"name"`
	// Required: a host cannot work with a plugin that fails. The others say what a
	// host may rely on.
	Required    bool   `json:"required"`
	Result      Result `json:"result"`
	Observation string `json:"observation"`
	// ToDo is what its author can do; empty where there is nothing to do.
	ToDo string `json:"toDo,omitempty"`
}

// Report is all checks of one plugin, always the same ones in the same order.
type Report struct {
	Plugin string  `json:"plugin"`
	Socket string  `json:"socket"`
	Works  bool    `json:"works"` // no required check failed
	Calls  int     `json:"calls"`
	Checks []Check `json:"checks"`
}

// Find returns the check of a name.
func (r Report) Find(name string) Check {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return Check{}
}

// Count returns how many checks have a result.
func (r Report) Count(result Result, required bool) int {
	n := 0
	for _, c := range r.Checks {
		if c.Result == result && c.Required == required {
			n++
		}
	}
	return n
}
