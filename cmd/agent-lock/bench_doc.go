package main

import (
	_ "embed" // the text around the tables
	"fmt"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/report"
)

// benchSettings are the columns of the benchmark's tables, in their order, by the
// layer of a result.
var benchSettings = []struct{ layer, title string }{
	{"none", "no jail"},
	{"jail", "in the jail"},
	{"landlock", "Landlock"},
	{"beside", "outside, 1 jail runs"},
	{"beside 50", "outside, 50 run"},
}

// startSettings are the rows of the table of starts.
var startSettings = []struct{ layer, title string }{
	{"none", "fork and exec alone"},
	{"bwrap", "`bwrap --ro-bind / /`"},
	{"jail", "a jail beside others"},
	{"first jail", "the first jail"},
}

//go:embed bench_doc.md
var benchDocText string

// benchDoc writes docs/benchmarks.md from the JSON lines of vmtest --bench.
func benchDoc(std stdio, args []string) int {
	if len(args) != 1 {
		return std.errorf("usage: agent-lock bench-doc RESULTS.json > docs/benchmarks.md")
	}
	results, err := readResults(args[0])
	if err != nil {
		return std.errorf("bench-doc: %v", err)
	}
	text := benchTables(results)
	if text == "" {
		return std.errorf("%s has no measurements", args[0])
	}
	fmt.Fprint(std.out, benchDocText, text)
	return 0
}

// benchTables is a section for each kernel.
func benchTables(results []report.Result) string {
	type key struct{ kernel, name, layer string }
	values := map[key]float64{}
	var kernels, names []string
	for _, r := range results {
		if r.Kind != report.Bench {
			continue
		}
		values[key{r.Kernel, r.Name, r.Layer}] = r.Value
		if !slices.Contains(kernels, r.Kernel) {
			kernels = append(kernels, r.Kernel)
		}
		if !slices.Contains(names, r.Name) && !strings.HasPrefix(r.Name, "start") {
			names = append(names, r.Name)
		}
	}
	var b strings.Builder
	for _, kernel := range kernels {
		fmt.Fprintf(&b, "\n## Linux %s\n\n| operation |", kernel)
		for _, s := range benchSettings {
			fmt.Fprintf(&b, " %s |", s.title)
		}
		b.WriteString("\n|---|" + strings.Repeat("--:|", len(benchSettings)) + "\n")
		for _, name := range names {
			base := values[key{kernel, name, "none"}]
			fmt.Fprintf(&b, "| %s |", strings.ReplaceAll(name, "_", ", "))
			for _, s := range benchSettings {
				value, ok := values[key{kernel, name, s.layer}]
				fmt.Fprintf(&b, " %s |", benchCell(value, base, ok, s.layer != "none"))
			}
			b.WriteByte('\n')
		}
		b.WriteString("\n| start | to the first instruction | to the end |\n|---|--:|--:|\n")
		for _, s := range startSettings {
			first, ok := values[key{kernel, "start", s.layer}]
			if ok {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", s.title, thousands(first),
					thousands(values[key{kernel, "start_to_end", s.layer}]))
			}
		}
	}
	return b.String()
}

// benchCell is a count and how much more than the base it is.
func benchCell(value, base float64, ok, relative bool) string {
	switch {
	case !ok:
		return "–"
	case !relative || base == 0:
		return thousands(value)
	}
	return fmt.Sprintf("%s (%+.1f %%)", thousands(value), (value/base-1)*100)
}

// thousands groups the digits of a whole number.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
