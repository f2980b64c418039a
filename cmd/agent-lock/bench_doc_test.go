package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/report"
)

func TestBenchDoc(t *testing.T) {
	var lines bytes.Buffer
	measured := func(name, layer string, value float64) report.Result {
		return report.Result{Kernel: "6.12.1", Kind: report.Bench, Name: name, Layer: layer,
			Outcome: report.OK, Value: value, Unit: "insns/op"}
	}
	err := report.WriteJSON(&lines, measured("open_close", "none", 9000),
		measured("open_close", "jail", 9450), measured("start", "first jail", 1234567),
		measured("start_to_end", "first jail", 2234567))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "results")
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	if status := benchDoc(stdio{out: &out, err: &stderr}, []string{path}); status != 0 {
		t.Fatalf("benchDoc = %d, want 0; stderr: %s", status, &stderr)
	}
	for _, want := range []string{
		"## Linux 6.12.1\n", "| open, close | 9,000 | 9,450 (+5.0 %) | – | – | – |\n",
		"| the first jail | 1,234,567 | 2,234,567 |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("benchDoc wrote %q, want %q in it", &out, want)
		}
	}
}
