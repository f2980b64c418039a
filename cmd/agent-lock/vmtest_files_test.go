package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/report"
)

// A baseline of another point release is one of the same kernel.
func TestVMTestFiles(t *testing.T) {
	dir := t.TempDir()
	program := func(kernel string, insns uint32) report.Result {
		return report.Result{Kernel: kernel, Kind: report.Program, Name: "file_open",
			Outcome: report.OK, Insns: insns}
	}
	var before bytes.Buffer
	if err := report.WriteJSON(&before, program("6.12.117", 100)); err != nil {
		t.Fatal(err)
	}
	f := vmtestFiles{names: map[string]string{"junit": filepath.Join(dir, "junit.xml")},
		baseline: filepath.Join(dir, "before.json")}
	if err := f.check(""); err == nil {
		t.Error("check of a baseline that is not there: no error")
	}
	if err := os.WriteFile(f.baseline, before.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	summary := filepath.Join(dir, "summary.md")
	if err := os.WriteFile(summary, []byte("# Another step\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.check(summary); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := f.write(&table, []report.Result{program("6.12.118", 150)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"new leaks: 0", "gone: 0", "+50.0 %"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("comparison %q, want %q in it", table.String(), want)
		}
	}
	for file, want := range map[string]string{summary: "# Another step\n**1 ",
		filepath.Join(dir, "junit.xml"): "<testsuites"} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s = %q, %v, want %q in it", file, text, err, want)
		}
	}
	f.names["html"] = filepath.Join(dir, "no", "such")
	if err := f.check(""); err == nil {
		t.Error("check of a file in no directory: no error")
	}
}
