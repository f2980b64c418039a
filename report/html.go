package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"visible": visible,
	"lines":   visibleLines,
	"absent":  Result.isAbsent,
	"word":    Result.word,
	"class":   Result.class,
	"said":    Result.said,
}).Parse(page))

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

// said is the errno and the detail.
func (r Result) said() string { return strings.TrimSpace(r.Errno + " " + r.Detail) }

// A pageResult is a result that the page says more about than its outcome.
type pageResult struct {
	Result
	Title string // of its column
}

// A pageFamily is open when one of its rows belongs to the short form of the matrix.
type pageFamily struct {
	matrixFamily
	Open bool
}

// WriteHTML writes results as one page that needs nothing else, neither scripts nor files:
// the counts, what is bad or known to leak, and the whole matrix of [WriteMatrix], a table for
// each family, folded where nothing differs and nothing leaks.
func WriteHTML(w io.Writer, results []Result) error {
	m := newMatrix(results)
	_, titles := columns(results)
	data := struct {
		Matrix   matrix
		Summary  string
		Counts   []count
		Notes    []pageResult
		Families []pageFamily
		Legend   string
	}{Matrix: m, Summary: Summary(results), Counts: counts(results), Legend: legend}
	for _, r := range results {
		if r.Bad() || r.Outcome == Known {
			data.Notes = append(data.Notes, pageResult{r, titles[r.column()]})
		}
	}
	for _, f := range m.Families {
		data.Families = append(data.Families, pageFamily{f, len(f.shown(false)) > 0})
	}
	if err := pageTemplate.Execute(w, data); err != nil {
		return fmt.Errorf("write HTML: %w", err)
	}
	return nil
}
