package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/kernels"
)

func TestCommandLineLSM(t *testing.T) {
	for _, tt := range []struct {
		name, config, want string
	}{
		{name: "has_bpf", config: `CONFIG_LSM="landlock,yama,bpf"`, want: ""},
		{name: "lacks_bpf", config: `CONFIG_LSM="landlock,yama"`, want: "lsm=landlock,yama,bpf"},
		{name: "empty", config: `CONFIG_LSM=""`, want: "lsm=bpf"},
		{name: "unknown", config: "", want: "lsm=" + guestLSM + ",bpf"},
		{name: "bpf_in_a_name", config: `CONFIG_LSM="nobpf"`, want: "lsm=nobpf,bpf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k kernels.Kernel
			if tt.config != "" {
				k.Config = filepath.Join(t.TempDir(), "config")
				if err := os.WriteFile(k.Config, []byte(tt.config+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			line, got := commandLine(k, machineType{arch: kernels.AMD64, accel: accelTCG}), ""
			for _, word := range strings.Fields(line) {
				if strings.HasPrefix(word, "lsm=") {
					got = word
				}
			}
			if got != tt.want {
				t.Errorf("commandLine has %q, want %q", got, tt.want)
			}
			if !strings.HasSuffix(line, " -- guest-init") {
				t.Errorf("commandLine = %q, want it to end with the arguments of init", line)
			}
		})
	}
}

func TestProbeFirmware(t *testing.T) {
	image, err := probeFirmware()
	if err != nil {
		t.Fatal(err)
	}
	if len(image) != 64<<10 {
		t.Fatalf("firmware has %d bytes, want 65536", len(image))
	}
	// A near jump counts from its end, in 16 bits.
	disp := uint16(image[0xfff1]) | uint16(image[0xfff2])<<8
	if target := uint16(0xfff3) + disp; image[0xfff0] != 0xe9 || target != 0 {
		t.Errorf("the reset vector jumps to %#x, want the start of the code", target)
	}
}

func TestProbeRunsUnderTCG(t *testing.T) {
	qemu, err := boards[kernels.AMD64].find()
	if err != nil {
		t.Skip(err)
	}
	tcg := machineType{arch: kernels.AMD64, accel: accelTCG, cpus: 2, memoryMB: 256}
	if err := probe(qemu, tcg); err != nil {
		t.Errorf("probe(tcg) = %v, want nil", err)
	}
}

func TestProbeVerdict(t *testing.T) {
	failed := exec.Command("false").Run()
	for _, tt := range []struct {
		name   string
		result error
		stderr string
		want   string
	}{
		{name: "aborted", result: failed, want: "failed to set MSR 0x10a to 0x69",
			stderr: "qemu: error: failed to set MSR 0x10a to 0x69\nqemu: assertion\n"},
		{name: "suberror", result: failed, want: "KVM internal error. Suberror: 1",
			stderr: "KVM internal error. Suberror: 1\nextra data[0]: 0x0\n"},
		{name: "other", result: failed, stderr: "no such device\n", want: "no such device"},
		{name: "silent", result: failed, want: "the probe guest ended with exit status 1"},
		{name: "clean_exit", result: nil, want: "the probe guest ended with <nil>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := probeVerdict(tt.result, tt.stderr)
			if err == nil || err.Error() != tt.want {
				t.Errorf("probeVerdict = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestAcceleratorFallsBackOnce(t *testing.T) {
	said := 0
	a := &accelerator{use: accelKVM, logf: func(string, ...any) { said++ }}
	for i := range 2 { // two cells that were booting at the same time
		if !a.fail(accelKVM, "x") {
			t.Errorf("fail(kvm), time %d = false, want another try", i)
		}
	}
	if now := a.current(kernels.AMD64); now != accelTCG || said != 1 {
		t.Errorf("after two failures: use %s, said %d times, want tcg, once", now, said)
	}
	if a.fail(accelTCG, "x") {
		t.Error("fail(tcg) = true, want no further try")
	}
	fixed := &accelerator{use: accelKVM, fixed: true, logf: func(string, ...any) {}}
	if fixed.fail(accelKVM, "x") {
		t.Error("fail(kvm) after --accel kvm = true, want no falling back")
	}
}
