package vmtest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agent-lock/agent-lock/kernels"
)

// Accel is a choice of accelerator.
type Accel string

// The choices. Auto uses KVM when a probe ran a guest through it, else TCG.
const (
	AccelAuto Accel = "auto"
	AccelKVM  Accel = "kvm"
	AccelTCG  Accel = "tcg"
)

// ParseAccel reads the value of a flag.
func ParseAccel(s string) (Accel, error) {
	switch a := Accel(s); a {
	case AccelAuto, AccelKVM, AccelTCG:
		return a, nil
	}
	return "", fmt.Errorf("accelerator %q is none of auto, kvm, tcg", s)
}

// probeTime is how long a probe may take. It takes 0.1 s where KVM works.
const probeTime = 2 * time.Second

// probeStatus is QEMU's exit status after the probe's firmware wrote 0x2a to
// the debug-exit port.
const probeStatus = 0x2a<<1 | 1

// probeCode is a firmware that goes through what a kernel needs first: protected
// and long mode, paging, cpuid, rdtsc, SSE2, a string move over a megabyte, the
// local APIC, a CR3 reload. Then it writes 0x2a to port 0xf4. It is placed at
// the start of the 64 KiB below 4 GiB.
const probeCode = "" +
	"fa2e660f011618010f20c00c010f22c066ea18000f00080066b810008ed88ec08ed0bc0070000031c0bf0010" +
	"0000b900180000f3abc7050010000003200000bf00200000b803300000b9040000008907050010000083c708" +
	"e2f4bf00300000b883000000b9000800008907050000200083c708e2f40f20e00d200600000f22e0b8001000" +
	"000f22d8b9800000c00f320d000100000f300f20c083e0fb0d020000800f22c0eaab000f00180031c00fa20f" +
	"310f28c8660fd4c848c7c70080000048c7c10000100048c7c60000200048c7c700004000f3a448bb2000e0fe" +
	"000000008b035058e805000000b02ae6f4f40f20d80f22d8c38d74000000000000000000ffff0000009bcf00" +
	"ffff00000093cf00ffff0000009baf001f00f8000f"

// probeFirmware returns the 64 KiB image: code at its start, and at the reset
// vector, 16 bytes before its end, a jump there.
func probeFirmware() ([]byte, error) {
	code, err := hex.DecodeString(probeCode)
	if err != nil {
		return nil, err
	}
	const size, vector = 64 << 10, 0xfff0
	image := bytes.Repeat([]byte{0xff}, size)
	n := copy(image, code)
	clear(image[n:vector])
	copy(image[vector:], []byte{0xe9, 0x0d, 0x00}) // jmp +0x0d wraps to 0
	return image, nil
}

// badKVM are messages after which waiting for the probe is pointless: QEMU stays
// alive with a stopped guest.
var badKVM = []string{"KVM internal error", "failed to set MSR", "KVM_RUN failed"}

// probe runs a guest through the accelerator. It returns nil when that works.
func probe(qemu string, t machineType) error {
	image, err := probeFirmware()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "agent-lock-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bios := filepath.Join(dir, "probe.bin")
	if err := os.WriteFile(bios, image, 0o600); err != nil {
		return err
	}
	cmd := exec.Command(qemu, append(t.args(), "-bios", bios)...)
	stderr := &limitedBuffer{max: 16 << 10}
	cmd.Stdout, cmd.Stderr = stderr, stderr
	var result error
	pid, exited, err := startBound(cmd, &result)
	if err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	m := &machine{pid: pid}
	for end := time.After(probeTime); ; {
		select {
		case <-exited:
			return probeVerdict(result, stderr.String())
		case <-end:
			m.kill()
			<-exited
			return errors.New("the probe guest hung")
		case <-time.After(5 * time.Millisecond):
			for _, text := range badKVM {
				if strings.Contains(stderr.String(), text) {
					m.kill()
				}
			}
		}
	}
}

func probeVerdict(result error, stderr string) error {
	var exit *exec.ExitError
	if errors.As(result, &exit) && exit.ExitCode() == probeStatus {
		return nil
	}
	for _, line := range strings.Split(stderr, "\n") {
		for _, text := range badKVM {
			if at := strings.Index(line, text); at >= 0 {
				return errors.New(line[at:])
			}
		}
	}
	if line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n"); line != "" {
		return errors.New(line)
	}
	return fmt.Errorf("the probe guest ended with %v", result)
}

// accelerator decides once, for all cells of a run, what they use.
type accelerator struct {
	mu    sync.Mutex
	use   accel
	fixed bool // the user asked for it: no falling back
	logf  func(format string, args ...any)
}

// chooseAccel decides what to use and says so. The probe's firmware is for x86-64: arm64's
// guests are emulated everywhere.
func chooseAccel(cfg Config, outfits map[string]outfit) (*accelerator, error) {
	want := cfg.Accel
	a := &accelerator{use: accelTCG, fixed: want != AccelAuto && want != "", logf: cfg.Logf}
	if want == AccelTCG {
		return a, nil
	}
	o, ok := outfits[kernels.AMD64]
	if want == AccelKVM && (!ok || len(outfits) > 1) {
		return nil, errors.New("kvm: guests of arm64 are emulated; leave --accel out")
	}
	err := errors.New("it is for guests of x86-64")
	if ok {
		err = openKVM()
	}
	if err == nil {
		err = probe(o.qemu, cfg.machine(kernels.AMD64, accelKVM))
	}
	switch {
	case err == nil:
		a.use = accelKVM
		a.logf("kvm: works; using it")
	case want == AccelKVM:
		return nil, fmt.Errorf("kvm: %w (--accel auto falls back to tcg)", err)
	default:
		a.logf("kvm: %v; using tcg", err)
	}
	return a, nil
}

func openKVM() error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func (a *accelerator) current(arch string) accel {
	if arch != kernels.AMD64 {
		return accelTCG
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.use
}

// fail records that a guest did not come up under used. It reports whether to
// try again with another accelerator.
func (a *accelerator) fail(used accel, why string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if used != accelKVM || a.fixed {
		return false
	}
	if a.use == accelKVM {
		a.use = accelTCG
		a.logf("kvm: the guest's kernel did not start (%s); using tcg from here on", why)
	}
	return true
}
