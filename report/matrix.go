package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A matrix has a row for each check and a column for each thing that was checked.
type matrix struct {
	Columns  []string // titles
	Families []matrixFamily
	Totals   []total
}

// A matrixFamily is a family's rows, and a total a column.
type matrixFamily struct {
	Name   string
	Rows   []matrixRow
	Totals []total
}

// A matrixRow is a check; a cell without an outcome has no result.
type matrixRow struct {
	Name  string
	Cells []Result
}

// A total says how many attacks were stopped, of those that were made and judged.
type total struct{ stopped, tried, broken int }

func (t total) String() string {
	s := "-"
	if t.tried > 0 {
		s = fmt.Sprintf("%d/%d", t.stopped, t.tried)
	}
	if t.broken > 0 {
		s += fmt.Sprintf(" +%d broken", t.broken)
	}
	return s
}

func (t *total) add(r Result) {
	switch {
	case r.isAbsent() || r.Outcome == Skipped || r.Outcome == Unsupported:
	case r.isBroken():
		t.broken++
	default:
		t.tried++
		if r.Outcome == Denied || r.Outcome == OK {
			t.stopped++
		}
	}
}

// isAbsent reports whether a cell of a matrix has no result.
func (r Result) isAbsent() bool { return r.Name == "" && r.Outcome == "" }

func newMatrix(results []Result) matrix {
	list, titles := columns(results)
	m := matrix{Totals: make([]total, len(list))}
	for _, c := range list {
		m.Columns = append(m.Columns, titles[c])
	}
	for _, g := range families(results, Result.family) {
		f := matrixFamily{Name: visible(g.name), Totals: make([]total, len(list))}
		for _, check := range families(g.results, func(r Result) string { return r.Name }) {
			r := matrixRow{Name: visible(check.name)}
			for i, c := range list {
				cell := cellOf(check.results, c)
				r.Cells = append(r.Cells, cell)
				f.Totals[i].add(cell)
				m.Totals[i].add(cell)
			}
			f.Rows = append(f.Rows, r)
		}
		m.Families = append(m.Families, f)
	}
	return m
}

// cellOf returns what a check came to in a column.
func cellOf(results []Result, c column) Result {
	results = slices.DeleteFunc(slices.Clone(results), func(r Result) bool {
		return r.column() != c
	})
	if len(results) == 0 {
		return Result{}
	}
	return worst(results)
}

// words are what the cells say.
func (r matrixRow) words() []string {
	var words []string
	for _, cell := range r.Cells {
		if cell.isAbsent() {
			words = append(words, "-")
			continue
		}
		words = append(words, cell.word())
	}
	return words
}

// telling reports whether a row is in the short form: its cells differ, or one is a leak
// or bad.
func (r matrixRow) telling() bool {
	return slices.ContainsFunc(r.Cells, func(cell Result) bool {
		return !cell.isAbsent() && (cell.Bad() || cell.Outcome == Known) ||
			cell.Outcome != r.Cells[0].Outcome
	})
}

// shown returns the rows of the long or of the short form.
func (f matrixFamily) shown(all bool) []matrixRow {
	return slices.DeleteFunc(slices.Clone(f.Rows), func(r matrixRow) bool {
		return !all && !r.telling()
	})
}

// folded says how many rows the short form leaves out; nothing when there are none.
func (m matrix) folded(all bool) string {
	n := 0
	for _, f := range m.Families {
		n += len(f.Rows) - len(f.shown(all))
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s more: the same in every column, and no leak", quantity(n, "row"))
}

// legend explains the totals.
const legend = "n/m: n stopped of m; what was skipped, unsupported or broken is not in m"

// WriteMatrix writes a row for each check and a column for each jail, with its layers, user
// and kernel where they differ, for a terminal. Each family has a line of totals. Rows in
// which nothing differs and nothing leaks are written only if all are wanted.
func WriteMatrix(w io.Writer, results []Result, all bool) error {
	m := newMatrix(results)
	rows := []row{{cells: append([]string{""}, m.Columns...)}}
	for _, f := range m.Families {
		rows = append(rows, row{cells: append([]string{f.Name}, texts(f.Totals)...)})
		for _, r := range f.shown(all) {
			line := row{cells: append([]string{"  " + r.Name}, r.words()...), colours: []string{""}}
			for _, cell := range r.Cells {
				line.colours = append(line.colours, cell.shade())
			}
			rows = append(rows, line)
		}
	}
	rows = append(rows, row{cells: append([]string{"total"}, texts(m.Totals)...)})
	if err := writeRows(w, rows); err != nil {
		return err
	}
	for _, note := range []string{m.folded(all), legend} {
		if note == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "  (%s)\n", note); err != nil {
			return err
		}
	}
	return nil
}

// shade is the colour of a cell.
func (r Result) shade() string {
	if r.isAbsent() {
		return faint
	}
	return r.colour()
}

func texts(totals []total) []string {
	var all []string
	for _, t := range totals {
		all = append(all, t.String())
	}
	return all
}

// markdown writes the matrix as a table.
func (m matrix) markdown(b *strings.Builder, all bool) {
	head := []string{"case"}
	for _, title := range m.Columns {
		head = append(head, code(title))
	}
	markdownRow(b, head)
	fmt.Fprintln(b, strings.Repeat("|---", len(head))+"|")
	for _, f := range m.Families {
		line := []string{bold(f.Name)}
		for _, t := range f.Totals {
			line = append(line, bold(t.String()))
		}
		markdownRow(b, line)
		for _, r := range f.shown(all) {
			line := []string{code(r.Name)}
			for i, word := range r.words() {
				if !r.Cells[i].isAbsent() {
					word = outcomeWord(r.Cells[i])
				}
				line = append(line, word)
			}
			markdownRow(b, line)
		}
	}
	line := []string{bold("total")}
	for _, t := range m.Totals {
		line = append(line, bold(t.String()))
	}
	markdownRow(b, line)
	for _, note := range []string{m.folded(all), legend} {
		if note != "" {
			fmt.Fprintf(b, "\n%s\n", note)
		}
	}
}
