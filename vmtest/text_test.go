package vmtest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-lock/agent-lock/kernels"
)

func TestText(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kernels int
		want    string
	}{
		{"one_kernel_as_it_comes", 1, "one\ntwo"},
		{"two_kernels_in_lines", 2, "6.1: one\n6.1: two\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got bytes.Buffer
			r := &runner{cfg: Config{Text: &got, Kernels: make([]kernels.Kernel, tt.kernels)}}
			out := r.newText("6.1")
			out.write([]byte("hidden\n"), nil)
			for _, part := range []string{"o", "ne\nt", "wo"} {
				out.write([]byte(part), &got)
			}
			out.flush()
			if got.String() != tt.want {
				t.Errorf("text = %q, want %q", got.String(), tt.want)
			}
			if diff := cmp.Diff([]string{"hidden", "one", "two"}, out.last); diff != "" {
				t.Errorf("kept lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTextKeepsTheLastLines(t *testing.T) {
	r := &runner{cfg: Config{Text: new(bytes.Buffer)}}
	out := r.newText("6.1")
	flood := strings.Repeat("line\n", 10*outputLines) + strings.Repeat("x", 10*textChunk)
	out.write([]byte(flood), nil)
	if len(out.last) > outputLines || len(out.part) >= textChunk {
		t.Errorf("text keeps %d lines and %d bytes", len(out.last), len(out.part))
	}
}
