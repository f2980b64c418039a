package vmtest

import (
	"bufio"
	"cmp"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"

	"github.com/agent-lock/agent-lock/kernels"
)

// A board is the machine that QEMU plays for an architecture.
type board struct {
	qemu, pkg string // QEMU's program, and Debian's package of it
	elf       elf.Machine
	machine   string // of QEMU's
	cpu       string // when it is emulated
	devices   []string
	results   []string // the serial port of the frames; its backend is "res"
	console   []string // words for the kernel
	// monitored machines have no device that gives QEMU an exit status: a monitor tells
	// why they ended.
	monitored bool
}

var boards = map[string]board{
	kernels.AMD64: {
		qemu: "qemu-system-x86_64", pkg: "qemu-system-x86", elf: elf.EM_X86_64,
		machine: "q35", cpu: "max",
		devices: []string{"-device",
			fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=0x04", debugExitPort)},
		results: []string{"-serial", "chardev:res"},
		console: []string{"console=ttyS0", "earlyprintk=serial,ttyS0,115200",
			"no_timer_check"}, // the emulated timer is known to work
	},
	kernels.ARM64: {
		qemu: "qemu-system-aarch64", pkg: "qemu-system-arm", elf: elf.EM_AARCH64,
		machine: "virt,gic-version=3",
		// The architecture's own algorithm for signed pointers is slow to emulate.
		cpu:       "max,pauth-impdef=on",
		results:   []string{"-device", "pci-serial,chardev=res"},
		console:   []string{"console=ttyAMA0", "earlycon"},
		monitored: true,
	},
}

// boardOf returns the board for an architecture, and why there is none.
func boardOf(arch string) (board, error) {
	b, ok := boards[arch]
	if !ok {
		return b, fmt.Errorf("vmtest boots guests for amd64 and arm64, not for %s", arch)
	}
	return b, nil
}

// find returns the path of QEMU.
func (b board) find() (string, error) {
	path, err := exec.LookPath(b.qemu)
	if err != nil {
		return "", fmt.Errorf("%s is not installed; install it with apt-get install %s", b.qemu,
			b.pkg)
	}
	return path, nil
}

// archOf is a kernel's architecture.
func archOf(k kernels.Kernel) string { return cmp.Or(k.Arch, runtime.GOARCH) }

// outfit is what guests of an architecture take.
type outfit struct {
	qemu string
	base string // the initramfs with the binary
}

// outfits finds what the kernels' guests take.
func (c Config) outfits() (map[string]outfit, error) {
	all := map[string]outfit{}
	for _, k := range c.Kernels {
		arch := archOf(k)
		if _, ok := all[arch]; ok {
			continue
		}
		b, err := boardOf(arch)
		if err != nil {
			return nil, err
		}
		var o outfit
		if o.qemu, err = b.find(); err != nil {
			return nil, err
		}
		binary := c.Binaries[arch]
		if binary == "" && arch == runtime.GOARCH {
			binary = c.Binary
		}
		if binary == "" {
			return nil, fmt.Errorf("boot %s: no binary for guests of %s is given", k.Name, arch)
		}
		if err := checkStatic(binary, b.elf); err != nil {
			return nil, fmt.Errorf("boot %s: %w (make cross builds one for arm64)", k.Name, err)
		}
		if o.base, err = baseArchive(c.Cache, binary); err != nil {
			return nil, err
		}
		all[arch] = o
	}
	return all, nil
}

// An ending is why a monitored machine went off, in QEMU's words; "" when it did not say.
type ending struct {
	told chan struct{} // closed when QEMU is gone
	why  string
}

// What QEMU says of a machine that was switched off from within, not started again.
const switchedOff = "guest-shutdown"

// watchEnd follows QEMU's monitor (docs/interop/qmp-spec.rst) up to its end.
func watchEnd(monitor io.ReadWriter) *ending {
	e := &ending{told: make(chan struct{})}
	go func() {
		defer close(e.told)
		if _, err := monitor.Write([]byte(`{"execute":"qmp_capabilities"}` + "\n")); err != nil {
			return
		}
		for lines := bufio.NewScanner(monitor); lines.Scan(); {
			var m struct {
				Event string
				Data  struct{ Reason string }
			}
			if json.Unmarshal(lines.Bytes(), &m) == nil && m.Event == "SHUTDOWN" {
				e.why = m.Data.Reason
			}
		}
	}()
	return e
}

// status is QEMU's exit status, or the one that stands for how the machine ended.
func (m *machine) status() int {
	var exit *exec.ExitError
	if errors.As(m.err, &exit) {
		return exit.ExitCode() // -1 when a signal ended it
	}
	if m.ending == nil {
		return 0
	}
	if <-m.ending.told; m.ending.why == switchedOff {
		return debugExitStatus(exitDone)
	}
	return debugExitStatus(exitBroken)
}
