package jail

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both of our machines are little-endian, so the
// low half of an argument comes first.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// x32 is set in the numbers of a third interface of x86-64, which almost nobody
// uses and whose calls would need rows of their own.
const x32 = 0x40000000

// auditArch is how the kernel names each interface to a filter.
var auditArch = map[abi]uint32{
	abiAMD64: unix.AUDIT_ARCH_X86_64, abiI386: unix.AUDIT_ARCH_I386,
	abiARM64: unix.AUDIT_ARCH_AARCH64, abiARM: unix.AUDIT_ARCH_ARM,
}

// interfaces are those of a kernel for a GOARCH: its own and the 32-bit one.
func interfaces(goarch string) (own, compat abi, err error) {
	switch goarch {
	case "amd64":
		return abiAMD64, abiI386, nil
	case "arm64":
		return abiARM64, abiARM, nil
	}
	return 0, 0, fmt.Errorf("no seccomp filter is written for %s", goarch)
}

// seccompFilter is the filter of a jail. With the BPF layer 32-bit programs run
// under the same list; without it they do not run: ENOSYS for every call.
func seccompFilter(goarch string, withBPF bool) ([]bpf.Instruction, error) {
	own, compat, err := interfaces(goarch)
	if err != nil {
		return nil, err
	}
	filter := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetArch, Size: 4}}
	for _, a := range []abi{own, compat} {
		if a == compat && !withBPF {
			continue
		}
		part := filterFor(a, withBPF)
		filter = append(filter,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch[a], SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(part))})
		filter = append(filter, part...)
	}
	return append(filter, refuse(unix.ENOSYS)), nil
}

// filterFor is the part of the filter for one interface.
func filterFor(a abi, withBPF bool) []bpf.Instruction {
	part := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetNumber, Size: 4}}
	if a == abiAMD64 {
		part = append(part,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1}, refuse(unix.ENOSYS))
	}
	for _, r := range refusals() {
		if r.numbers[a] == no || r.alone && withBPF {
			continue
		}
		body := r.body()
		part = append(part,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(r.numbers[a]), SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(body))})
		part = append(part, body...)
	}
	return append(part, allow)
}

var allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}

func refuse(errno syscall.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// body decides about one call; it always returns.
func (r refusal) body() []bpf.Instruction {
	if len(r.when) == 0 {
		return []bpf.Instruction{refuse(r.errno)}
	}
	var body []bpf.Instruction
	for _, c := range r.when {
		body = append(body, c.code()...)
	}
	return append(body, allow)
}

// code returns when the condition holds, and goes on behind itself when not.
func (c condition) code() []bpf.Instruction {
	code := []bpf.Instruction{refuse(c.errno)}
	for i := len(c.tests) - 1; i >= 0; i-- {
		code = append(c.tests[i].code(uint32(len(code))), code...)
	}
	return code
}

// code goes on behind itself when the test holds and skips further when not.
func (t test) code(further uint32) []bpf.Instruction {
	code := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetArgs + 8*uint32(t.arg), Size: 4}}
	if t.mask != 0 {
		code = append(code, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: t.mask})
	}
	n := len(t.values)
	for i, value := range t.values {
		// Behind the comparisons come two instructions: not found, found.
		code = append(code, bpf.JumpIf{
			Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(n - i),
		})
	}
	notFound, found := bpf.Jump{Skip: further + 1}, bpf.Jump{Skip: 0}
	if t.except {
		notFound, found = bpf.Jump{Skip: 1}, bpf.Jump{Skip: further}
	}
	return append(code, notFound, found)
}

// laySeccomp puts the filter over a script's process. It needs no_new_privs.
func (s *script) laySeccomp(withBPF bool) error {
	filter, err := seccompFilter(runtime.GOARCH, withBPF)
	if err != nil {
		return err
	}
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return fmt.Errorf("assemble the seccomp filter: %w", err)
	}
	if len(raw) > math.MaxUint16 {
		return fmt.Errorf("assemble the seccomp filter: %d instructions", len(raw))
	}
	code := make([]unix.SockFilter, len(raw))
	for i, ins := range raw {
		code[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	program := &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	s.do("enforce the seccomp filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		point(s, program))
	mode := s.do("ask for the seccomp filter", unix.SYS_PRCTL, unix.PR_GET_SECCOMP)
	mode.want, mode.value = returns, unix.SECCOMP_MODE_FILTER
	return nil
}

// seccomp is the system call, with a pointer to what the operation wants.
func seccomp[T any](operation, flags uintptr, arg *T) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, operation, flags,
		uintptr(unsafe.Pointer(arg)))
	if errno != 0 {
		return errno
	}
	return nil
}
