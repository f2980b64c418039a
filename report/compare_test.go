package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runOf makes results of words such as "name=leaked"; a third part is the jail.
func runOf(words ...string) []Result {
	var results []Result
	for _, word := range words {
		name, outcome, _ := strings.Cut(word, "=")
		outcome, jail, _ := strings.Cut(outcome, "@")
		results = append(results, Result{Kind: Case, Name: name, Family: "f", Jail: jail,
			Outcome: Outcome(outcome)})
	}
	return results
}

func TestCompare(t *testing.T) {
	tests := []struct {
		name          string
		before, after []Result
		want          map[string]string // list to names
	}{
		{"same", runOf("a=leaked", "b=denied", "c=known"),
			runOf("b=denied", "c=known", "a=leaked"), map[string]string{}},
		{"leaks", runOf("a=denied", "b=skipped", "c=known", "d=broken", "e=leaked"),
			runOf("a=leaked", "b=leaked", "c=leaked", "d=leaked", "e=leaked", "f=leaked"),
			map[string]string{"leaks": "a b c d f"}},
		{"failures", runOf("a=ok"), runOf("a=failed"), map[string]string{"leaks": "a"}},
		{"broken", runOf("a=broken", "b=leaked", "c=denied"),
			runOf("a=broken", "b=broken", "c=splendid", "d=broken"),
			map[string]string{"broken": "a b c d"}},
		{"mended", runOf("a=leaked", "b=known", "c=failed"), runOf("a=denied", "b=denied", "c=ok"),
			map[string]string{"mended": "a b c"}},
		// That a leak could not be tried again does not mend it.
		{"not_mended", runOf("a=leaked", "b=leaked", "c=leaked"),
			runOf("a=skipped", "b=unsupported", "c=known"), map[string]string{"changed": "a b c"}},
		{"new_and_gone", runOf("a=leaked", "b=denied"), runOf("c=denied", "d=known"),
			map[string]string{"gone": "a b", "new": "c d"}},
		{"changed", runOf("a=denied", "b=skipped", "c=broken"),
			runOf("a=known", "b=denied", "c=denied"), map[string]string{"changed": "a b c"}},
		{"by_jail", runOf("a=leaked@x", "a=denied@y"), runOf("a=denied@x", "a=leaked@y"),
			map[string]string{"leaks": "a", "mended": "a"}},
		{"worst_counts", runOf("a=denied"), runOf("a=leaked", "a=denied"),
			map[string]string{"leaks": "a"}},
		{"worst_counted", runOf("a=denied", "a=leaked"), runOf("a=leaked"), map[string]string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Compare(tt.before, tt.after)
			got := map[string]string{}
			for list, changes := range map[string][]Change{"leaks": c.NewLeaks, "broken": c.Broken,
				"mended": c.Mended, "gone": c.Gone, "new": c.New, "changed": c.Changed} {
				var names []string
				for _, change := range changes {
					r := change.After
					if r == nil {
						r = change.Before
					}
					names = append(names, r.Name)
				}
				if len(names) > 0 {
					got[list] = strings.Join(names, " ")
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Compare (-want +got):\n%s", diff)
			}
		})
	}
}

func TestComparisonWrite(t *testing.T) {
	before := runOf("a=denied", "b=leaked", "c=denied", "d=denied", "e=skipped")
	before[0].Errno = "EACCES"
	after := runOf("a=leaked", "b=denied", "d=broken", "e=denied", "f=denied")
	after[0].Detail = "the canary was sent out\nand more"
	for name, jails := range map[string][]string{"compare_one.txt": {"x"},
		"compare_two.txt": {"x", "y"}} {
		var olds, news []Result
		for _, jail := range jails {
			for i := range before {
				before[i].Jail, after[i].Jail = jail, jail
			}
			olds, news = append(olds, before...), append(news, after...)
		}
		var got bytes.Buffer
		if err := Compare(olds, news).Write(&got); err != nil {
			t.Fatal(err)
		}
		checkGolden(t, name, got.Bytes())
	}
	if err := (Comparison{}).Write(failing{}); err == nil {
		t.Error("Write to a full disk = nil, want an error")
	}
}

func TestAgree(t *testing.T) {
	tests := []struct {
		name   string
		want   int
		rounds []Result
		result Outcome
		detail string
	}{
		{"one_round", 1, runOf("a=denied"), Denied, ""},
		{"same", 3, runOf("a=leaked", "a=leaked", "a=leaked"), Leaked, ""},
		{"leaks_once", 3, runOf("a=denied", "a=leaked", "a=denied"), Broken,
			"the rounds differ: denied, leaked, denied"},
		{"known_once", 2, runOf("a=known", "a=denied"), Broken, "known, denied"},
		{"skipped_once", 2, runOf("a=denied", "a=skipped"), Broken, "denied, skipped"},
		{"a_round_short", 2, runOf("a=denied"), Broken, "in 1 of 2 rounds only: denied"},
		{"no_round", 2, nil, Broken, "no round"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Agree(tt.want, tt.rounds...)
			if got.Outcome != tt.result || !strings.Contains(got.Detail, tt.detail) {
				t.Errorf("Agree(%d, %+v) = %s, %q, want %s, %q", tt.want, tt.rounds, got.Outcome,
					got.Detail, tt.result, tt.detail)
			}
		})
	}
	rounds := runOf("a=denied", "a=leaked")
	rounds[0].Errno, rounds[1].Detail = "EACCES", "the canary was sent out"
	got := Agree(2, rounds...)
	if want := "(leaked: the canary was sent out)"; !strings.Contains(got.Detail, want) ||
		got.Errno != "" {
		t.Errorf("Agree = %+v, want %q and no errno of another round", got, want)
	}
}
