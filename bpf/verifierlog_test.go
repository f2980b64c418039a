package bpf

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The logs are those of real kernels.
func TestExplain(t *testing.T) {
	for _, tt := range []struct{ name, log, want string }{
		{"6.12", `reg type unsupported for arg#0 function bad#4
0: R1=ctx() R10=fp0
; __u64 *v = bpf_map_lookup_elem(&m, &k); @ bad.bpf.c:10
6: (85) call bpf_map_lookup_elem#1    ; R0_w=map_value_or_null(id=1,map=m,ks=4,vs=8)
; *v = 3; /* not checked */ @ bad.bpf.c:11
7: (b7) r1 = 3                        ; R1_w=3
8: (7b) *(u64 *)(r0 +0) = r1
R0 invalid mem access 'map_value_or_null'
processed 8 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0`,
			`permission denied: R0 invalid mem access 'map_value_or_null'
  at *v = 3; /* not checked */ @ bad.bpf.c:11
  6: (85) call bpf_map_lookup_elem#1
  7: (b7) r1 = 3
  8: (7b) *(u64 *)(r0 +0) = r1`},
		{"a state before the reason", `0: R1=ctx(off=0,imm=0) R10=fp0
0: (85) call bpf_get_prandom_u32#7    ; R0_w=scalar()
from 3 to 1: R0_w=scalar() R10=fp0
1: R0_w=scalar() R10=fp0
1: (95) exit
mark_precise: frame0: last_idx 1 first_idx 0 subseq_idx -1
At program exit the register R0 has unknown scalar value should have been in [-4095, 0]
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0`,
			`permission denied: At program exit the register R0 has unknown scalar value ` +
				`should have been in [-4095, 0]
  0: (85) call bpf_get_prandom_u32#7
  1: (95) exit`},
		{"without a trace", `arg#0 reference type('UNKNOWN ') size cannot be determined: -22
BPF program is too large. Processed 1000001 insn
processed 1000001 insns (limit 1000000) max_states_per_insn 4 total_states 9999`,
			"permission denied: BPF program is too large. Processed 1000001 insn"},
		{"unreadable register", "0: (bf) r7 = r8\nR8 !read_ok\nprocessed 1 insns (limit 1000000)",
			"permission denied: R8 !read_ok\n  0: (bf) r7 = r8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := fmt.Errorf("load: %w", &ebpf.VerifierError{Cause: unix.EACCES,
				Log: strings.Split(tt.log, "\n")})
			if diff := cmp.Diff(tt.want, Explain(err)); diff != "" {
				t.Errorf("Explain (-want +got):\n%s", diff)
			}
		})
	}
	if got := Explain(errors.New("no such file")); got != "no such file" {
		t.Errorf("Explain of another error = %q", got)
	}
}

func TestCostIn(t *testing.T) {
	got, err := costIn("processed 27 insns (limit 1000000) max_states_per_insn 0 " +
		"total_states 2 peak_states 2 mark_read 1\n")
	if want := (Cost{Insns: 27, States: 2}); err != nil || got != want {
		t.Errorf("costIn = %+v, %v, want %+v", got, err, want)
	}
	if _, err := costIn(""); err == nil {
		t.Error("costIn of an empty log: no error")
	}
}
