//go:build !amd64

package vmtest

import "golang.org/x/sys/unix"

// channelDevice is the serial port that carries frames: one on PCI, beside the board's own.
const channelDevice = "/dev/ttyS0"

// debugExit has no device to use: the host is told by QEMU's monitor how the machine ended.
// Switched off means a normal end, so any other starts the machine again.
func debugExit(status byte) {
	if status != exitDone {
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}
}
