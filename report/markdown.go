package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes results as GitHub Markdown, for the summary of a job: the counts,
// what leaked, broke or is known to leak, the matrix when more than one thing was attacked,
// and a folded table for each family.
func WriteMarkdown(w io.Writer, results []Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n| outcome | number |\n|---|--:|\n", Summary(results))
	for _, c := range counts(results) {
		fmt.Fprintf(&b, "| %s | %d |\n", c.Outcome, c.N)
	}
	_, titles := columns(results)
	for _, part := range []struct {
		heading string
		results []Result
	}{
		{"Leaked", with(results, Leaked)}, {"Failed", with(results, Failed)},
		{"Broken", brokenOf(results)}, {"Known leaks", with(results, Known)},
	} {
		if len(part.results) > 0 {
			fmt.Fprintf(&b, "\n### %s (%d)\n\n", part.heading, len(part.results))
			markdownTable(&b, part.results, titles)
		}
	}
	if len(titles) > 1 {
		fmt.Fprint(&b, "\n### Matrix\n\n")
		newMatrix(results).markdown(&b, false)
	}
	fmt.Fprint(&b, "\n### Families\n")
	for _, g := range families(results, Result.family) {
		fmt.Fprintf(&b, "\n<details><summary>%s: %s</summary>\n\n", code(g.name),
			Summary(g.results))
		markdownTable(&b, g.results, titles)
		fmt.Fprint(&b, "\n</details>\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdownMatrix writes the matrix of [WriteMatrix] as a table in GitHub Markdown.
func WriteMarkdownMatrix(w io.Writer, results []Result, all bool) error {
	var b strings.Builder
	newMatrix(results).markdown(&b, all)
	_, err := io.WriteString(w, b.String())
	return err
}

// markdownTable writes a row for each result; what was attacked is a column of its own
// where it is not the same for all.
func markdownTable(b *strings.Builder, results []Result, titles map[column]string) {
	head := []string{"outcome", "case", "errno", "ms", "detail"}
	if len(titles) > 1 {
		head = append(head, "attacked")
	}
	markdownRow(b, head)
	fmt.Fprintln(b, strings.Repeat("|---", len(head))+"|")
	for _, r := range results {
		took := ""
		if r.Millis > 0 {
			took = fmt.Sprintf("%.1f", r.Millis)
		}
		cells := []string{outcomeWord(r), code(r.Name), code(r.Errno), took,
			code(firstLine(r.Detail))}
		if len(titles) > 1 {
			cells = append(cells, code(titles[r.column()]))
		}
		markdownRow(b, cells)
	}
}

func markdownRow(b *strings.Builder, cells []string) {
	fmt.Fprintln(b, "| "+strings.Join(cells, " | ")+" |")
}

// outcomeWord is the outcome in Markdown, in bold type when it is bad.
func outcomeWord(r Result) string {
	if r.Bad() {
		return bold(r.word())
	}
	return r.word()
}

// bold is a text in bold type. As Markdown's own marks it would depend on the text.
func bold(s string) string { return "<strong>" + references(s) + "</strong>" }

// code is a text from outside in Markdown: in a code element, in which GitHub looks for
// neither names nor numbers nor addresses to link.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "<code>" + references(visible(s)) + "</code>"
}

// references replaces all that could mean something in Markdown or HTML by a character
// reference: that is never read as syntax, not even as the end of a table cell. An
// underscore between letters means nothing, and names are full of them.
func references(s string) string {
	var b strings.Builder
	word := func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	for i, r := range s {
		inWord := r == '_' && i > 0 && i+1 < len(s) && word(s[i-1]) && word(s[i+1])
		switch {
		case r >= 0x80, r == ' ', word(byte(r)), inWord, strings.ContainsRune("-/,()=%", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "&#%d;", r)
		}
	}
	return b.String()
}
