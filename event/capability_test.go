package event

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestTriedCapability(t *testing.T) {
	for number, want := range map[int]string{
		unix.CAP_CHOWN: "use CAP_CHOWN", unix.CAP_SYS_ADMIN: "use CAP_SYS_ADMIN",
		unix.CAP_LAST_CAP: "use CAP_CHECKPOINT_RESTORE", 63: "use capability 63",
		-1: "use capability -1",
	} {
		if got := TriedCapability(number); got != want {
			t.Errorf("TriedCapability(%d) = %q, want %q", number, got, want)
		}
	}
}
