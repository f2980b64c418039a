package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// WriteTable writes results for people: grouped by family, and by what was attacked when that
// is more than one thing, one line a result, and a last line that counts them. What is bad is
// in capitals, so that it stands out without colour; there is colour on a terminal only.
func WriteTable(w io.Writer, results []Result) error {
	list, titles := columns(results)
	var rows []row
	for _, g := range families(results, func(r Result) string {
		if len(list) > 1 {
			return titles[r.column()] + ": " + visible(r.family())
		}
		return visible(r.family())
	}) {
		rows = append(rows, row{heading: g.name})
		for _, r := range g.results {
			rows = append(rows, resultRow(r))
		}
	}
	if err := writeRows(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, Summary(results))
	return err
}

// WriteLine writes one result in a line.
func WriteLine(w io.Writer, r Result) error {
	cells := []string{r.word(), visible(r.Name), visible(r.Errno), firstLine(r.Detail)}
	cells = slices.DeleteFunc(cells, func(cell string) bool { return cell == "" })
	_, err := fmt.Fprintln(w, strings.Join(cells, "  "))
	return err
}

// A row is a line of a table for a terminal.
type row struct {
	heading string   // instead of cells
	cells   []string // of printable characters only
	colours []string // of the cells, as far as they have one
}

// resultRow is a result's line in the table.
func resultRow(r Result) row {
	detail, took := firstLine(r.Detail), ""
	if r.Outcome == Denied && r.Errno != "" {
		detail = "" // the errno says it
	}
	if r.Millis > 0 {
		took = fmt.Sprintf("%.1fms", r.Millis)
	}
	return row{cells: []string{r.word(), visible(r.Name), clip(visible(r.Errno), 20), took, detail},
		colours: []string{r.colour()}}
}

// writeRows aligns the cells of all rows.
func writeRows(w io.Writer, rows []row) error {
	var widths []int
	for _, r := range rows {
		for i, cell := range r.cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	coloured := colours(w)
	for _, r := range rows {
		line := r.heading
		for i, cell := range r.cells {
			text := cell
			if slices.ContainsFunc(r.cells[i+1:], func(c string) bool { return c != "" }) {
				text = pad(cell, widths[i])
			}
			if coloured && i < len(r.colours) && r.colours[i] != "" {
				text = r.colours[i] + cell + plain + strings.TrimPrefix(text, cell)
			}
			line += "  " + text
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// Summary counts the outcomes in one line.
func Summary(results []Result) string {
	var parts []string
	for _, c := range counts(results) {
		part := fmt.Sprintf("%d %s", c.N, c.Outcome)
		if c.Outcome == Denied {
			part += recordedOf(results)
		}
		parts = append(parts, part)
	}
	noun := "case"
	if list, _ := columns(results); len(list) > 1 {
		noun = "result" // of fewer cases
	}
	return fmt.Sprintf("%s: %s", quantity(len(results), noun), strings.Join(parts, ", "))
}

// A count is how many results have an outcome.
type count struct {
	Outcome Outcome
	N       int
}

// counts counts the outcomes that occur, and leaks always.
func counts(results []Result) []count {
	var all []count
	for _, o := range []Outcome{OK, Denied, Failed, Leaked, Known, Skipped, Unsupported} {
		if n := Count(results, o); n > 0 || o == Leaked {
			all = append(all, count{o, n})
		}
	}
	if n := len(brokenOf(results)); n > 0 {
		all = append(all, count{Broken, n})
	}
	return all
}

// quantity is a number with its noun.
func quantity(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// recordedOf is the score of a jail that has a log: as in " (4 recorded, 1 not)".
func recordedOf(results []Result) string {
	score := map[Record]int{}
	for _, r := range results {
		score[r.Record]++
	}
	if score[Recorded]+score[Unrecorded] == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d recorded, %d not)", score[Recorded], score[Unrecorded])
}
