package conformance

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// WriteText writes a report for people: a line for each check, what to do below
// each that failed, those that are not applicable by their reason, and the sum.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "plugin %q at %s, %d calls\n\n", r.Plugin, r.Socket, r.Calls)
	var reasons []string
	without := map[string][]string{} // names by reason
	for _, c := range r.Checks {
		switch c.Result {
		case Passed:
			fmt.Fprintf(&b, "%-6s  %-8s  %-19s  %s\n", "passed", importance(c), c.Name, c.Observation)
		case Failed:
			fmt.Fprintf(&b, "%-6s  %-8s  %-19s  %s\n%38sTo do: %s\n", "FAILED", importance(c), c.Name, c.Observation, "", c.ToDo)
		case NotApplicable:
			if without[c.Observation] == nil {
				reasons = append(reasons, c.Observation)
			}
			without[c.Observation] = append(without[c.Observation], c.Name)
		}
	}
	for _, reason := range reasons {
		fmt.Fprintf(&b, "not applicable: %s\n    %s\n", strings.Join(without[reason], ", "), reason)
	}
	fmt.Fprintf(&b, "\nrequired: %d passed, %d failed, %d not applicable; advisory: %d passed, %d failed, %d not applicable\n",
		r.Count(Passed, true), r.Count(Failed, true), r.Count(NotApplicable, true),
		r.Count(Passed, false), r.Count(Failed, false), r.Count(NotApplicable, false))
	if r.Works {
		b.WriteString("A host can work with this plugin.\n")
	} else {
		b.WriteString("A host cannot work with this plugin: a required check failed.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func importance(c Check) string {
	if c.Required {
		return "required"
	}
	return "advisory"
}

// WriteJSON writes a report for programs.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// The elements of JUnit's XML that CI systems read.
type (
	suiteXML struct {
		XMLName  xml.Name  `xml:"testsuite"`
		Name     string    `xml:"name,attr"`
		Tests    int       `xml:"tests,attr"`
		Failures int       `xml:"failures,attr"`
		Skipped  int       `xml:"skipped,attr"`
		Cases    []caseXML `xml:"testcase"`
	}
	caseXML struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Failure *resultXML `xml:"failure,omitempty"`
		Skipped *resultXML `xml:"skipped,omitempty"`
		Output  string     `xml:"system-out,omitempty"`
	}
	resultXML struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes a report for CI systems. Only a required check is a failure
// there: JUnit has no warnings, so a failed advisory one is skipped with its
// observation.
func (r Report) WriteJUnit(w io.Writer) error {
	s := suiteXML{Name: "plugin " + r.Plugin, Tests: len(r.Checks)}
	for _, c := range r.Checks {
		one := caseXML{Class: "conformance." + importance(c), Name: c.Name}
		switch {
		case c.Result == Failed && c.Required:
			one.Failure = &resultXML{c.Observation, c.ToDo}
			s.Failures++
		case c.Result == Failed:
			one.Skipped = &resultXML{"failed, advisory: " + c.Observation, c.ToDo}
			s.Skipped++
		case c.Result == NotApplicable:
			one.Skipped = &resultXML{"not applicable: " + c.Observation, ""}
			s.Skipped++
		default:
			one.Output = c.Observation
		}
		s.Cases = append(s.Cases, one)
	}
	_, err := io.WriteString(w, xml.Header)
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	err = errors.Join(err, e.Encode(s))
	_, end := io.WriteString(w, "\n")
	return errors.Join(err, end)
}
