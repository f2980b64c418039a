package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/vmtest"

	"github.com/google/go-cmp/cmp"
)

func TestSplitWords(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []string // nil: an error
	}{
		{"a b  c", []string{"a", "b", "c"}},
		{`sh -c 'echo "x y"; id'`, []string{"sh", "-c", `echo "x y"; id`}},
		{`a "b 'c'" d\ e`, []string{"a", "b 'c'", "d e"}},
		{`a '' ""`, []string{"a", "", ""}},
		{`a 'b\c'`, []string{"a", `b\c`}},
		{`x'y'"z"`, []string{"xyz"}},
		{"", nil},
		{"  ", nil},
		{"a 'b", nil},
		{`a \`, nil},
	} {
		got, err := splitWords(tt.in)
		if (err != nil) != (tt.want == nil) || !cmp.Equal(got, tt.want) {
			t.Errorf("splitWords(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
		}
	}
}

// Bad usage is one line on stderr, exit status 125, and nothing is started.
func TestVMTestUsageErrors(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "no kernels given"},
		{[]string{"--kernels", "newest"}, `kernel "newest" is neither`},
		{[]string{"--kernels", "6.1", "--accel", "hvf"}, `accelerator "hvf"`},
		{[]string{"--kernels", "6.1", "--frobnicate"}, "frobnicate"},
		{[]string{"--kernels", "6.1", "6.12"}, `unexpected argument "6.12"`},
		{[]string{"--kernels", "6.1", "--user"}, "--user is for --step"},
		{[]string{"--kernels", "6.1", "--bench", "--accel", "kvm"}, "--bench does not go"},
		{[]string{"--kernels", "6.1", "--users", "dev"}, "it is user, root"},
		{[]string{"--kernels", "6.1", "--layers", "selinux"}, `layer "selinux"`},
		{[]string{"--kernels", "6.1", "--layers", "bpf", "--bench"}, "--layers goes"},
		{[]string{"--kernels", "6.1", "--timeout", "0s"}, "must be positive"},
		{[]string{"--kernels", "6.1", "--file", "x"}, `--file "x" is not HOST:/GUEST`},
		{[]string{"--kernels", "6.1", "--step", "a 'b"}, "inside a quotation"},
		{[]string{"--kernels", "6.1", "--json", "/nonexistent/file"}, "write results"},
	} {
		var out, err bytes.Buffer
		status := runVMTest(stdio{out: &out, err: &err}, tt.args)
		if status != exitUsage || !strings.Contains(err.String(), tt.want) {
			t.Errorf("vmtest %q = %d, %q, want %d, %q",
				tt.args, status, err.String(), exitUsage, tt.want)
		}
		if n := strings.Count(err.String(), "\n"); n != 1 || out.Len() > 0 {
			t.Errorf("vmtest %q printed %d lines and %q, want one line on stderr",
				tt.args, n, out.String())
		}
	}
}

func TestVMTestPlan(t *testing.T) {
	f, err := parseVMTest([]string{"--kernels", "6.1,6.12", "--run", "^hardlink_"})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := f.plan()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, strings.Join(s.Argv, " "))
	}
	want := []string{
		"agent-lock guest-load",
		"agent-lock adversary --json - --run ^hardlink_",
		"agent-lock adversary --json - --run ^hardlink_ --user root",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// What a run on file systems needs is part of its flags when it is added to the run.
func TestFileSystemEquipment(t *testing.T) {
	f := vmtestFlags{filesystems: true}
	var cfg vmtest.Config
	remove, err := f.equip(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if len(f.equipment.modules) == 0 || len(f.equipment.packages) == 0 ||
		len(f.equipment.shares) == 0 {
		t.Errorf("equipment %+v, want modules, packages and a share", f.equipment)
	}
}
