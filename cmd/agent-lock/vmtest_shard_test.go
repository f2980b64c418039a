package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The shards of a list are the list.
func TestShards(t *testing.T) {
	list := []string{"6.1", "6.6", "6.12", "6.18", "7.3"}
	for of := 1; of <= len(list); of++ {
		var all []string
		for number := 1; number <= of; number++ {
			part, err := shard{number, of}.part(list)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, part...)
		}
		slices.SortFunc(all, func(a, b string) int {
			return slices.Index(list, a) - slices.Index(list, b)
		})
		if diff := cmp.Diff(list, all); diff != "" {
			t.Errorf("%d shards together (-want +got):\n%s", of, diff)
		}
	}
	if _, err := (shard{6, 6}).part(list); err == nil {
		t.Error("an empty shard: no error")
	}
	for _, bad := range []string{"", "1", "0/2", "3/2", "1/2x", "-1/2", "a/b", "1/0"} {
		if s, err := parseShard(bad); err == nil {
			t.Errorf("parseShard(%q) = %v, want an error", bad, s)
		}
	}
}

func TestVMTestMatrix(t *testing.T) {
	var out, errs bytes.Buffer
	status := runVMTest(stdio{out: &out, err: &errs}, []string{"matrix", "--json",
		"--kernels", "6.1,6.12"})
	if want := `{"kernel":["6.1","6.12"]}` + "\n"; status != 0 || out.String() != want {
		t.Errorf("matrix = %d, %q, %q, want %q", status, &out, &errs, want)
	}
}
