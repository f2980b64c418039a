package adversary

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkCatalogue returns what is wrong between a list of the catalogue's rows, one a line,
// and the sources of the cases.
func checkCatalogue(list string, cases []Case) []string {
	var problems, rows []string
	row := regexp.MustCompile(`^(D\d\d) \S.*$`)
	for line := range strings.Lines(list) {
		m := row.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			problems = append(problems, fmt.Sprintf("%q is no row", line))
			continue
		}
		if slices.Contains(rows, m[1]) {
			problems = append(problems, m[1]+" is there twice")
		}
		rows = append(rows, m[1])
	}
	attacked := map[string]bool{}
	for _, c := range cases {
		for _, id := range regexp.MustCompile(`\bD\d+\b`).FindAllString(c.Source, -1) {
			attacked[id] = true
			if !slices.Contains(rows, id) {
				problems = append(problems, fmt.Sprintf("case %s: no row %s", c.Name, id))
			}
		}
	}
	for _, id := range rows {
		if !attacked[id] {
			problems = append(problems, "no case attacks "+id)
		}
	}
	return problems
}

// Every row of the catalogue has a case, and every case a row.
func TestCatalogue(t *testing.T) {
	list, err := os.ReadFile("testdata/catalogue.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkCatalogue(string(list), Cases()) {
		t.Error(problem)
	}
	if n := strings.Count(string(list), "\n"); n != 74 {
		t.Errorf("the catalogue has %d rows, want 74: is one lost?", n)
	}
}

func TestCheckCatalogue(t *testing.T) {
	cases := []Case{{Name: "a_b", Source: "D01 CVE-2025-53110"}, {Name: "c_d", Source: "D02 D03"}}
	for _, tt := range []struct {
		name, list string
		want       []string
	}{
		{"right", "D01 one\nD02 two\nD03 three\n", nil},
		{"row_without_case", "D01 one\nD02 two\nD03 three\nD04 four\n",
			[]string{"no case attacks D04"}},
		{"case_without_row", "D01 one\nD02 two\n", []string{"case c_d: no row D03"}},
		{"twice", "D01 one\nD02 two\nD03 three\nD03 four\n", []string{"D03 is there twice"}},
		{"no_title", "D01 one\nD02 two\nD03\n",
			[]string{`"D03\n" is no row`, "case c_d: no row D03"}},
	} {
		if got := checkCatalogue(tt.list, cases); !slices.Equal(got, tt.want) {
			t.Errorf("%s: checkCatalogue = %q, want %q", tt.name, got, tt.want)
		}
	}
}
