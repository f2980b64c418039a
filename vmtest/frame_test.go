package vmtest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-lock/agent-lock/report"
)

func mustEncode(t testing.TB, seq uint64, kind frameKind, v any) []byte {
	t.Helper()
	line, err := encodeFrame(seq, kind, v)
	if err != nil {
		t.Fatalf("encodeFrame(%d, %s) = %v", seq, kind, err)
	}
	return bytes.TrimSuffix(line, []byte("\n"))
}

func TestFrameRoundTrip(t *testing.T) {
	for name, want := range map[string]report.Result{
		"small": {Kind: report.Case, Name: "a b", Outcome: report.Denied, Detail: "line\nline"},
		"large": {Kind: report.Program, Name: "p", Outcome: report.Failed,
			Detail: strings.Repeat("0: (b7) r0 = 0\n", 10000)},
	} {
		t.Run(name, func(t *testing.T) {
			line := mustEncode(t, 7, frameResult, want)
			if bytes.ContainsAny(line, "\r\n") {
				t.Error("a frame has a line end inside")
			}
			if name == "large" && len(line) > 10000 {
				t.Errorf("a large frame has %d bytes, want it compressed", len(line))
			}
			f, err := decodeFrame(line)
			if err != nil {
				t.Fatalf("decodeFrame = %v", err)
			}
			var got report.Result
			if err := f.decode(&got); err != nil {
				t.Fatal(err)
			}
			if f.seq != 7 || f.kind != frameResult {
				t.Errorf("decodeFrame = frame %d of kind %s, want 7, result", f.seq, f.kind)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// No single byte of a frame can change, vanish or appear unseen.
func TestFrameDamage(t *testing.T) {
	line := mustEncode(t, 12, frameText, textPayload{3, false, []byte("hello")})
	for i := range line {
		for _, b := range []byte{line[i] ^ 1, line[i] ^ 0x20, '0', ' '} {
			if b == line[i] {
				continue
			}
			damaged := bytes.Clone(line)
			damaged[i] = b
			if f, err := decodeFrame(damaged); err == nil {
				t.Errorf("decodeFrame(%q) = %+v, want an error", damaged, f)
			}
		}
		if _, err := decodeFrame(append(bytes.Clone(line[:i]), line[i+1:]...)); err == nil {
			t.Errorf("decodeFrame without byte %d = nil error", i)
		}
		if _, err := decodeFrame(line[:i]); err == nil {
			t.Errorf("decodeFrame of the first %d bytes = nil error", i)
		}
	}
}

func TestStreamOrder(t *testing.T) {
	const nonce = "0011"
	hello := func(seq uint64) []byte {
		return mustEncode(t, seq, frameHello, helloPayload{Nonce: nonce})
	}
	beat := func(seq uint64) []byte { return mustEncode(t, seq, frameBeat, struct{}{}) }
	end := func(seq uint64) []byte { return mustEncode(t, seq, frameEnd, endPayload{Nonce: nonce}) }
	for _, tt := range []struct {
		name  string
		lines [][]byte
		want  string // part of the error; empty: none
		ended bool
	}{
		{name: "whole", lines: [][]byte{hello(0), beat(1), end(2)}, ended: true},
		{name: "truncated", lines: [][]byte{hello(0), beat(1)}},
		{name: "gap", lines: [][]byte{hello(0), beat(2)}, want: "frame 2 follows frame 0"},
		{name: "repeated", lines: [][]byte{hello(0), beat(1), beat(1)},
			want: "frame 1 follows frame 1"},
		{name: "late_start", lines: [][]byte{hello(1)}, want: "frame 1 follows frame -1"},
		{name: "no_hello", lines: [][]byte{beat(0)}, want: "beat before hello"},
		{name: "two_hellos", lines: [][]byte{hello(0), hello(1)}, want: "second hello"},
		{name: "after_end", lines: [][]byte{hello(0), end(1), beat(2)}, ended: true,
			want: "after the end"},
		{name: "foreign_hello", want: "nonce of another run",
			lines: [][]byte{mustEncode(t, 0, frameHello, helloPayload{Nonce: "22"})}},
		{name: "foreign_end", want: "nonce of another run",
			lines: [][]byte{hello(0), mustEncode(t, 1, frameEnd, endPayload{Nonce: "22"})}},
		{name: "noise", lines: [][]byte{hello(0), []byte("login:")}, want: "no frame"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stream{nonce: nonce}
			var err error
			for _, line := range tt.lines {
				if _, err = s.accept(line); err != nil {
					break
				}
			}
			if (err == nil) != (tt.want == "") ||
				err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("accept = %v, want %q", err, tt.want)
			}
			if s.ended != tt.ended {
				t.Errorf("ended = %v, want %v", s.ended, tt.ended)
			}
		})
	}
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add(mustEncode(f, 0, frameHello, helloPayload{Nonce: "00"}))
	f.Add(mustEncode(f, 1, frameText, textPayload{0, false, bytes.Repeat([]byte("x"), packFrom)}))
	f.Add([]byte("@AL1 1 end j 2 00000000 {}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		fr, err := decodeFrame(line)
		if err == nil && len(fr.payload) > maxFrame {
			t.Errorf("decodeFrame gave %d bytes, want at most %d", len(fr.payload), maxFrame)
		}
	})
}
