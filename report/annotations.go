package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// maxAnnotations is how many annotations of a kind a step has; GitHub drops the others.
const maxAnnotations = 10

// WriteAnnotations writes what failed as commands to GitHub's runner, which shows them on
// the page of the run, and a notice of how it went.
func WriteAnnotations(w io.Writer, results []Result) error {
	var b strings.Builder
	bad := 0
	for _, r := range results {
		if !r.Bad() {
			continue
		}
		if bad++; bad > maxAnnotations {
			continue
		}
		where := strings.Join(strings.Fields(strings.Join(
			[]string{r.Kernel, r.Layer, r.User}, " ")), " ")
		fmt.Fprintf(&b, "::error title=%s::%s\n", inProperty.Replace(visible(r.word()+" "+r.Name)),
			inMessage.Replace(visible(where+": "+cmp.Or(firstLine(r.said()), "no detail"))))
	}
	notice := Summary(results)
	if bad > maxAnnotations {
		notice += fmt.Sprintf("; %d more than the %d errors that are shown", bad-maxAnnotations,
			maxAnnotations)
	}
	fmt.Fprintf(&b, "::notice title=agent-lock::%s\n", inMessage.Replace(notice))
	_, err := io.WriteString(w, b.String())
	return err
}

// What would end a part of a workflow command.
var (
	inMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	inProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
