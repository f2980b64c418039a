package report

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// clipped is how much of a detail is shown where a line must stay readable.
const clipped = 300

// visible writes out what a terminal, a browser or an editor would act upon or not show:
// names, errnos and details come in part from inside a jail. What is left is printable
// characters and spaces, in one line.
func visible(s string) string {
	quoted := strconv.Quote(s)
	return unquoted.Replace(quoted[1 : len(quoted)-1])
}

// unquoted undoes what strconv.Quote escapes for the sake of Go alone.
var unquoted = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// clip cuts a text that is longer than n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(n-1, 0)]) + "…"
}

// firstLine is a detail for a table: of several lines the first one.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return clip(visible(line), clipped)
}

// visibleLines is visible for a text whose lines stay lines.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = visible(line)
	}
	return strings.Join(lines, "\n")
}
