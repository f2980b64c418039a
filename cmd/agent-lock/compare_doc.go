package main

import (
	_ "embed" // the text around the tables
	"fmt"
	"strings"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/report"
)

//go:embed compare_doc.md
var compareDocText string

// compareDoc writes docs/comparison.md from the JSON lines of adversary --compare, each file
// with the place where it was made before it.
func compareDoc(std stdio, args []string) int {
	if len(args) == 0 {
		return std.errorf("usage: agent-lock compare-doc PLACE=RESULTS.json...")
	}
	var b strings.Builder
	b.WriteString(compareDocText)
	for _, arg := range args {
		place, name, ok := strings.Cut(arg, "=")
		if !ok {
			return std.errorf("compare-doc: %q is not PLACE=RESULTS.json", arg)
		}
		results, err := readResults(name)
		if err != nil {
			return std.errorf("compare-doc: %v", err)
		}
		if n := report.Count(results, report.Broken); n > 0 || len(results) == 0 {
			return std.errorf("compare-doc: %s: %d of %d results are broken; that shows nothing",
				name, n, len(results))
		}
		fmt.Fprintf(&b, "## %s\n\n", place)
		if err := report.WriteMarkdownMatrix(&b, results, false); err != nil {
			return std.errorf("compare-doc: %v", err)
		}
		b.WriteString("\n")
	}
	describeDefinitions(&b)
	fmt.Fprint(std.out, b.String())
	return 0
}

// describeDefinitions writes down the settings.
func describeDefinitions(b *strings.Builder) {
	b.WriteString("## Settings\n\n`agent-lock` is ours with its defaults. `{}` stands for the " +
		"project, `{config}` for a file.\n")
	for _, d := range adversary.Definitions() {
		fmt.Fprintf(b, "\n### %s\n\n```\n%s\n```\n\n", d.Name, wrapped(d.Argv, 100))
		if d.Config != "" {
			fmt.Fprintf(b, "```json\n%s\n```\n\n", strings.TrimSpace(d.Config))
		}
		fmt.Fprintf(b, "- settings from: %s\n- network: %s\n- installed by: `%s`\n", d.Source,
			d.Network, d.Install)
		if d.Note != "" {
			fmt.Fprintf(b, "- %s\n", d.Note)
		}
	}
}

// wrapped joins words to lines of at most so many columns, as a shell reads them.
func wrapped(words []string, columns int) string {
	var b strings.Builder
	line := 0
	for i, word := range words {
		switch {
		case i == 0:
		case line+len(word)+3 > columns:
			b.WriteString(" \\\n    ")
			line = 4
		default:
			b.WriteString(" ")
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}
