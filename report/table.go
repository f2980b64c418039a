package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes results as an aligned table, one line a result, grouped as
// they come. Leaked and broken lines are written in capitals so that they
// stand out without colour.
func WriteTable(w io.Writer, results []Result) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range results {
		outcome := string(r.Outcome)
		if r.Bad() {
			outcome = strings.ToUpper(outcome)
		}
		_, err := fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", outcome, r.Name, r.Errno, r.Detail)
		if err != nil {
			return err
		}
	}
	return tw.Flush()
}
