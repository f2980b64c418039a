package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteCosts shows for which programs the verifier processed another number of instructions
// than before.
func WriteCosts(w io.Writer, before, after []Result) error {
	old, _ := index(before)
	now, order := index(after)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	changed := 0
	for _, key := range order {
		b, a := old[key], now[key]
		if b == nil || a.Kind != Program || b.Insns == 0 || a.Insns == 0 || b.Insns == a.Insns {
			continue
		}
		if changed++; changed == 1 {
			fmt.Fprintln(tw, "\nprogram\tkernel\tinstructions before\tnow\tchange")
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%+.1f %%\n", visible(a.Name), visible(a.Kernel), b.Insns,
			a.Insns, 100*(float64(a.Insns)/float64(b.Insns)-1))
	}
	if changed == 0 {
		fmt.Fprintln(tw, "The verifier's costs are as before.")
	}
	return tw.Flush()
}
