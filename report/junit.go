package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The elements of JUnit's XML, as far as the programs that read it agree on them.
type (
	junitRun struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitCounts
		Suites []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitCounts
		Cases []junitCase `xml:"testcase"`
	}
	junitCounts struct {
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr"`
		millis   float64
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Error   *junitMessage `xml:"error"`
		Skipped *junitMessage `xml:"skipped"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes results as JUnit XML: a suite for each family, of each kernel where
// there is one; the class of a case is what was attacked. A known leak is a case that passed
// and says so in its output.
func WriteJUnit(w io.Writer, results []Result) error {
	run := junitRun{Name: "agent-lock"}
	for _, g := range families(results, func(r Result) string {
		return strings.TrimSpace(r.Kernel + " " + r.family())
	}) {
		suite := junitSuite{Name: visible(g.name)}
		for _, r := range g.results {
			c := newJUnitCase(r)
			suite.Cases = append(suite.Cases, c)
			suite.add(c, r.Millis)
			run.add(c, r.Millis)
		}
		run.Suites = append(run.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(run); err != nil {
		return fmt.Errorf("write JUnit XML: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func newJUnitCase(r Result) junitCase {
	var class []string
	for _, word := range []string{r.Jail, r.Layer, r.User, r.family()} {
		if word != "" {
			// Readers make a hierarchy of what has dots.
			class = append(class, strings.ReplaceAll(visible(word), ".", "_"))
		}
	}
	c := junitCase{Name: visible(r.Name), Class: strings.Join(class, "."), Time: seconds(r.Millis)}
	what := visibleLines(r.said())
	message := &junitMessage{Message: firstLine(r.Detail), Type: string(r.Outcome), Text: what}
	switch r.Outcome {
	case OK, Denied:
	case Leaked, Failed:
		c.Failure = message
	case Skipped, Unsupported:
		message.Message = string(r.Outcome) + ": " + message.Message
		message.Type, message.Text = "", ""
		c.Skipped = message
	case Known:
		c.Out = "known leak: " + what
	case Broken:
		c.Error = message
	default:
		message.Type = visible(string(r.Outcome))
		c.Error = message
	}
	return c
}

func (n *junitCounts) add(c junitCase, millis float64) {
	n.Tests++
	switch {
	case c.Failure != nil:
		n.Failures++
	case c.Error != nil:
		n.Errors++
	case c.Skipped != nil:
		n.Skipped++
	}
	n.millis += millis
	n.Time = seconds(n.millis)
}

func seconds(millis float64) string { return fmt.Sprintf("%.4f", millis/1000) }
