package adversary

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/agent-lock/agent-lock/report"
)

// WriteTable writes the results for people, grouped by family, and a last line
// that counts them. Leaks and broken cases are in capitals.
func WriteTable(w io.Writer, results []report.Result) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	family := ""
	for _, r := range results {
		if r.Family != family {
			family = r.Family
			fmt.Fprintf(tw, "%s\n", family)
		}
		outcome, detail := string(r.Outcome), r.Detail
		if r.Bad() {
			outcome = strings.ToUpper(outcome)
		}
		if r.Outcome == report.Denied && r.Errno != "" {
			detail = "" // the errno says it
		}
		if i := strings.IndexByte(detail, '\n'); i >= 0 {
			detail = detail[:i]
		}
		took := ""
		if r.Millis > 0 {
			took = fmt.Sprintf("%.1fms", r.Millis)
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", outcome, r.Name, r.Errno, took, detail)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, Summary(results))
	return err
}

// Summary counts the outcomes in one line.
func Summary(results []report.Result) string {
	var parts []string
	for _, o := range []report.Outcome{report.Denied, report.Leaked, report.Known,
		report.Skipped, report.Unsupported, report.Broken} {
		if n := report.Count(results, o); n > 0 || o == report.Leaked {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return fmt.Sprintf("%d cases: %s", len(results), strings.Join(parts, ", "))
}
