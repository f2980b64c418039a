package report

import (
	"fmt"
	"io"
	"strings"
)

// A Change is one check in two runs; nil where it has no result.
type Change struct{ Before, After *Result }

// A Comparison says what became different between two runs. Each check is in one list
// at most.
type Comparison struct {
	NewLeaks []Change // leaks that were not leaks before, or whose check is new
	Broken   []Change // checks that do not work, whatever they came to before
	Mended   []Change // leaks, known ones too, that are now denied
	Gone     []Change // checks without a result now
	New      []Change // checks without a result before
	Changed  []Change // any other difference in the outcome
}

// Compare compares two runs. Only leaks that are new and broken checks are bad news. Where
// a run has several results of one check, the worst is the one that counts.
func Compare(before, after []Result) Comparison {
	var c Comparison
	old, _ := index(before)
	now, order := index(after)
	for _, key := range order {
		change := Change{After: now[key], Before: old[key]}
		switch b, a := change.Before, change.After; {
		case a.isBroken():
			c.Broken = append(c.Broken, change)
		case a.Bad() && (b == nil || b.Outcome != a.Outcome):
			c.NewLeaks = append(c.NewLeaks, change)
		case b == nil:
			c.New = append(c.New, change)
		case b.Outcome == a.Outcome:
		case (b.Outcome == Leaked || b.Outcome == Failed || b.Outcome == Known) &&
			(a.Outcome == Denied || a.Outcome == OK):
			c.Mended = append(c.Mended, change)
		default:
			c.Changed = append(c.Changed, change)
		}
	}
	_, order = index(before)
	for _, key := range order {
		if now[key] == nil {
			c.Gone = append(c.Gone, Change{Before: old[key]})
		}
	}
	return c
}

// index returns one result for each check, and the checks in their order.
func index(results []Result) (map[Key]*Result, []Key) {
	found := map[Key]*Result{}
	var order []Key
	for _, r := range results {
		key := r.Key()
		if found[key] == nil {
			order = append(order, key)
			found[key] = &r
		} else if w := worst([]Result{*found[key], r}); w != *found[key] {
			found[key] = &w
		}
	}
	return found, order
}

// Write shows the differences, in the manner of a diff: what was begins with a minus, what
// is with a plus. The last line counts them.
func (c Comparison) Write(w io.Writer) error {
	lists := []struct {
		name    string
		changes []Change
	}{
		{"new leaks", c.NewLeaks}, {"broken", c.Broken}, {"mended", c.Mended},
		{"changed", c.Changed}, {"gone", c.Gone}, {"new cases", c.New},
	}
	var all []Result
	for _, list := range lists {
		for _, change := range list.changes {
			for _, r := range []*Result{change.Before, change.After} {
				if r != nil {
					all = append(all, *r)
				}
			}
		}
	}
	titled, titles := columns(all)
	var b strings.Builder
	var sums []string
	for _, list := range lists {
		sums = append(sums, fmt.Sprintf("%s: %d", list.name, len(list.changes)))
		if len(list.changes) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", list.name)
		for _, change := range list.changes {
			change.write(&b, "-", change.Before, len(titled) > 1, titles)
			change.write(&b, "+", change.After, len(titled) > 1, titles)
		}
	}
	_, err := fmt.Fprintf(w, "%s%s\n", &b, strings.Join(sums, ", "))
	return err
}

func (Change) write(b *strings.Builder, sign string, r *Result, titled bool,
	titles map[column]string) {
	if r == nil {
		return
	}
	words := []string{visible(r.Name)}
	if titled {
		words = append(words, "("+titles[r.column()]+")")
	}
	words = append(words, r.word())
	if r.Errno != "" {
		words = append(words, clip(visible(r.Errno), 20))
	}
	if detail := firstLine(r.Detail); detail != "" && (r.Errno == "" || r.Outcome != Denied) {
		words = append(words, "("+detail+")")
	}
	fmt.Fprintf(b, "%s %s\n", sign, strings.Join(words, " "))
}

// Agree makes one result of those of one check in several rounds. Rounds that differ in
// their outcome show that the check cannot be relied on: it is broken then, whatever they
// were. Want is the number of rounds.
func Agree(want int, rounds ...Result) Result {
	if len(rounds) == 0 {
		return Result{Outcome: Broken, Detail: "no round gave a result"}
	}
	first := rounds[0]
	var outcomes []string
	same := true
	for _, r := range rounds {
		same = same && r.Outcome == first.Outcome
		outcomes = append(outcomes, visible(string(r.Outcome)))
	}
	switch {
	case !same:
		odd := worst(rounds)
		first.Outcome, first.Errno = Broken, odd.Errno
		first.Detail = "the rounds differ: " + strings.Join(outcomes, ", ")
		if odd.Detail != "" {
			first.Detail += fmt.Sprintf(" (%s: %s)", odd.Outcome, odd.Detail)
		}
	case len(rounds) < want:
		first.Outcome = Broken
		first.Detail = fmt.Sprintf("a result in %d of %d rounds only: %s", len(rounds), want,
			strings.Join(outcomes, ", "))
	}
	return first
}
