//go:build !guest

// It reads a source, which a guest does not have.

package jail

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// What root keeps without the BPF layer is what the hook lets pass with it.
func TestSparedCapabilities(t *testing.T) {
	source, err := os.ReadFile("../bpf/root.bpf.h")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]uintptr{
		"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE,
		"FOWNER": unix.CAP_FOWNER, "KILL": unix.CAP_KILL, "SETGID": unix.CAP_SETGID,
		"SETUID": unix.CAP_SETUID, "SETPCAP": unix.CAP_SETPCAP,
		"NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "IPC_LOCK": unix.CAP_IPC_LOCK,
		"IPC_OWNER": unix.CAP_IPC_OWNER, "SYS_PTRACE": unix.CAP_SYS_PTRACE,
	}
	body := regexp.MustCompile(`(?s)bool is_harmless\(.*?\n}\n`).Find(source)
	var want []uintptr
	for _, m := range regexp.MustCompile(`case CAP_(\w+):`).FindAllSubmatch(body, -1) {
		n, known := names[string(m[1])]
		if !known {
			t.Errorf("the hook spares CAP_%s, which this test does not know", m[1])
		}
		want = append(want, n)
	}
	if len(want) == 0 {
		t.Fatal("is_harmless was not found in the source")
	}
	if diff := cmp.Diff(want, spared); diff != "" {
		t.Errorf("spared (-hook +Go):\n%s", diff)
	}
}
