package vmtest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// channelDevice is the serial port that carries frames.
const channelDevice = "/dev/ttyS1"

// outb writes one byte to an I/O port.
func outb(port uint16, value uint8)

// debugExit ends QEMU through its isa-debug-exit device. It returns when there
// is none. The calling goroutine has to be locked to its thread.
func debugExit(value byte) {
	if _, _, e := unix.RawSyscall(unix.SYS_IOPERM, debugExitPort, 1, 1); e != 0 {
		fmt.Fprintln(os.Stderr, "agent-lock: guest-init: ioperm:", e)
		return
	}
	outb(debugExitPort, value)
}
