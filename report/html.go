package report

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"
)

// pageHead is the page up to its title's text.
//
//go:embed page.html
var pageHead string

// WriteHTML writes results as one page that needs nothing else, neither scripts nor files:
// the counts, what is bad or known to leak, and the whole matrix of [WriteMatrix], a table for
// each family, folded where nothing differs and nothing leaks.
//
// It does without html/template, with which the linker keeps every method of the program: a
// sixth more of a binary that is copied into guests and projects.
func WriteHTML(w io.Writer, results []Result) error {
	m := newMatrix(results)
	p := &page{}
	p.WriteString(strings.TrimRight(pageHead, "\n"))
	fmt.Fprintf(p, "agent-lock: %s</title>\n</head>\n<body>\n", text(Summary(results)))
	p.element("h1", Summary(results))
	p.counts(results)
	p.notes(results)
	p.element("h2", "Matrix")
	p.element("p", legend)
	p.totals(m)
	for _, f := range m.Families {
		p.family(f, m.Columns)
	}
	p.WriteString("</body>\n</html>\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// text is a text as a part of a page, or of a quoted attribute.
func text(s string) string { return html.EscapeString(s) }

// A page is HTML in the making. What it is given as text comes out as text.
type page struct{ strings.Builder }

func (p *page) element(name, content string) {
	fmt.Fprintf(p, "<%s>%s</%s>\n", name, text(content), name)
}

// row is a row of a table, of cells with plain text.
func (p *page) row(cell string, texts ...string) {
	p.WriteString("<tr>")
	for _, t := range texts {
		fmt.Fprintf(p, "<%s>%s</%s>", cell, text(t), cell)
	}
	p.WriteString("</tr>\n")
}

func (p *page) counts(results []Result) {
	p.WriteString("<table>\n")
	p.row("th", "outcome", "number")
	for _, c := range counts(results) {
		fmt.Fprintf(p, "<tr><td class=\"%s\">%s</td><td>%d</td></tr>\n", c.Outcome, c.Outcome, c.N)
	}
	p.WriteString("</table>\n")
}

// notes says more of what is bad or known to leak.
func (p *page) notes(results []Result) {
	_, titles := columns(results)
	first := true
	for _, r := range results {
		if !r.Bad() && r.Outcome != Known {
			continue
		}
		if first {
			p.element("h2", "Leaked, failed, broken or known")
			p.WriteString("<table>\n")
			p.row("th", "outcome", "case", "attacked", "errno", "detail")
			first = false
		}
		fmt.Fprintf(p, "<tr><td class=\"%s\">%s</td><td><code>%s</code></td><td>%s</td><td>%s</td>"+
			"<td><pre>%s</pre></td></tr>\n", r.class(), text(r.word()), text(visible(r.Name)),
			text(titles[r.column()]), text(visible(r.Errno)), text(visibleLines(r.Detail)))
	}
	if !first {
		p.WriteString("</table>\n")
	}
}

// totals is the matrix of the families.
func (p *page) totals(m matrix) {
	p.WriteString("<table>\n")
	p.row("th", append([]string{"family"}, m.Columns...)...)
	for _, f := range m.Families {
		p.row("td", append([]string{f.Name}, texts(f.Totals)...)...)
	}
	p.row("th", append([]string{"total"}, texts(m.Totals)...)...)
	p.WriteString("</table>\n")
}

// family is the matrix of the cases of a family.
func (p *page) family(f matrixFamily, columns []string) {
	open := ""
	if len(f.shown(false)) > 0 {
		open = " open"
	}
	fmt.Fprintf(p, "<details%s><summary>%s</summary>\n<table>\n", open, text(f.Name))
	p.row("th", append([]string{"case"}, columns...)...)
	for _, r := range f.Rows {
		fmt.Fprintf(p, "<tr><td><code>%s</code></td>", text(r.Name))
		for i, word := range r.words() {
			title := ""
			if said := r.Cells[i].said(); said != "" {
				title = fmt.Sprintf(" title=\"%s\"", text(visible(said)))
			}
			fmt.Fprintf(p, "<td class=\"%s\"%s>%s</td>", r.Cells[i].class(), title, text(word))
		}
		p.WriteString("</tr>\n")
	}
	p.WriteString("</table>\n</details>\n")
}

// class is the outcome as a class of the page's style sheet: one of our own words.
func (r Result) class() string {
	switch {
	case r.isAbsent():
		return "absent"
	case r.isBroken():
		return string(Broken)
	}
	return string(r.Outcome)
}
