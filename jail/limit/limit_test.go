package limit_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/agent-lock/agent-lock/jail/limit"
)

const childVariable = "AGENT_LOCK_LIMIT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		fmt.Printf("%d of %d", limit.Descriptors.Cur, limit.Descriptors.Max)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The limit is read before package syscall raises it.
func TestDescriptors(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `ulimit -Sn 300 && ulimit -Hn 400 && exec "$0"`,
		os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	got, err := cmd.CombinedOutput()
	if want := "300 of 400"; string(got) != want || err != nil {
		t.Errorf("the limit is %q, %v, want %q", got, err, want)
	}
}
