package report

import (
	"cmp"
	"slices"
	"strings"
)

// A Key tells checks apart: results with the same key are of the same check.
type Key struct {
	Kernel, Jail, Layer, User string
	Kind                      Kind
	Name                      string
}

// Key returns what the result is the result of.
func (r Result) Key() Key {
	return Key{r.Kernel, r.Jail, r.Layer, r.User, r.Kind, r.Name}
}

// family is the result's family; what has none is grouped by its kind.
func (r Result) family() string { return cmp.Or(r.Family, string(r.Kind)) }

// A column is what was checked, as opposed to the check.
type column struct{ kernel, jail, layer, user string }

func (r Result) column() column { return column{r.Kernel, r.Jail, r.Layer, r.User} }

// words are the fields of a column for its title. A jail that is named after its layers
// says them once.
func (c column) words() [4]string {
	if strings.Contains(c.jail, c.layer) {
		c.layer = ""
	}
	return [4]string{c.kernel, c.jail, c.layer, c.user}
}

// columns lists what was checked, in order, each with a title of the fields in which
// it differs from the others.
func columns(results []Result) ([]column, map[column]string) {
	var list []column
	seen := map[column]bool{}
	for _, r := range results {
		if c := r.column(); !seen[c] {
			seen[c] = true
			list = append(list, c)
		}
	}
	var differs [4]bool
	for _, c := range list {
		for i, word := range c.words() {
			differs[i] = differs[i] || word != list[0].words()[i]
		}
	}
	titles := map[column]string{}
	for _, c := range list {
		var words []string
		for i, word := range c.words() {
			if word != "" && (differs[i] || len(list) == 1) {
				words = append(words, visible(word))
			}
		}
		titles[c] = cmp.Or(clip(strings.Join(words, " "), 40), "-")
	}
	return list, titles
}

// A group is the results of one family.
type group struct {
	name    string
	results []Result
}

// families groups results by a name, in the order in which the names come.
func families(results []Result, name func(Result) string) []group {
	var groups []group
	at := map[string]int{}
	for _, r := range results {
		n := name(r)
		i, ok := at[n]
		if !ok {
			i = len(groups)
			at[n] = i
			groups = append(groups, group{name: n})
		}
		groups[i].results = append(groups[i].results, r)
	}
	return groups
}

// with returns the results that have one of the outcomes.
func with(results []Result, outcomes ...Outcome) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool {
		return !slices.Contains(outcomes, r.Outcome)
	})
}

// isBroken reports whether a check did not work; an outcome of another version counts.
func (r Result) isBroken() bool {
	return r.Bad() && r.Outcome != Leaked && r.Outcome != Failed
}

// brokenOf returns the results of checks that did not work.
func brokenOf(results []Result) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return !r.isBroken() })
}

// word is the outcome as it is shown: in capitals when it is bad.
func (r Result) word() string {
	if r.Bad() {
		return strings.ToUpper(visible(string(cmp.Or(r.Outcome, "none"))))
	}
	return string(r.Outcome)
}

// said is the errno and the detail.
func (r Result) said() string { return strings.TrimSpace(r.Errno + " " + r.Detail) }

// rank orders outcomes by how little they let one hope for.
func (r Result) rank() int {
	if r.isBroken() {
		return 5
	}
	return map[Outcome]int{Leaked: 7, Failed: 6, Known: 4, Skipped: 3, Unsupported: 2}[r.Outcome]
}

// worst returns, of several results of one check, the one to believe.
func worst(results []Result) Result {
	return slices.MaxFunc(results, func(a, b Result) int { return a.rank() - b.rank() })
}
