package bpf

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cilium/ebpf"
)

// foldedLines is how many instructions before the refused one Explain shows.
const foldedLines = 8

// Explain says why a program was not loaded: of the verifier's log the reason, the line of
// the source that it is about, where the program has such information, and the last
// instructions that were checked. Other errors stay as they are.
func Explain(err error) string {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) {
		return err.Error()
	}
	reason, source, trace := fold(ve.Log)
	if reason == "" {
		return err.Error()
	}
	text := fmt.Sprintf("%v: %s", ve.Cause, reason)
	if source != "" {
		text += "\n  at " + source
	}
	for _, line := range trace {
		text += "\n  " + line
	}
	return text
}

var (
	// instruction begins a line about one: "12: (61) r1 = *(u32 *)(r0 +0)".
	instruction = regexp.MustCompile(`^\d+: \([0-9a-f]{2}\) `)
	// bookkeeping is what the log has besides instructions and reasons. A state is dumped
	// after "from 3 to 7:" and as "7: R0=..." alone.
	bookkeeping = regexp.MustCompile(`^(processed \d+ insns|verification time|stack depth|` +
		`mark_precise|last_idx|regs=|parent |from \d+ to \d+|\d+: R\d|R\d|func#|` +
		`caller:|callee:|frame\d|propagating |` +
		`reg type unsupported for arg#|arg#\d+ reference type\()`)
	// state follows an instruction since 5.18: "; R1_w=ctx(off=0,imm=0)".
	state = regexp.MustCompile(`\s+; (frame\d+: )?R\d.*$`)
)

// fold takes a log apart.
func fold(log []string) (reason, source string, trace []string) {
	for _, line := range log {
		line = strings.TrimRight(line, " \t\n")
		switch {
		case line == "" || bookkeeping.MatchString(line) && !isReason(line):
		case strings.HasPrefix(line, ";"):
			source = strings.TrimSpace(line[1:])
		case instruction.MatchString(line):
			reason = "" // what came before was no reason to stop
			trace = append(trace, state.ReplaceAllString(line, ""))
			if len(trace) > foldedLines {
				trace = trace[1:]
			}
		case reason == "":
			reason = line
		default:
			reason += "; " + line
		}
	}
	return reason, source, trace
}

// isReason tells reasons that begin like the dump of a state: "R1 invalid mem access",
// "R0 !read_ok".
func isReason(line string) bool {
	name, rest, ok := strings.Cut(line, " ")
	return ok && strings.HasPrefix(name, "R") && !strings.Contains(name, "=") && rest != ""
}
