package bpf

import (
	"os"
	"os/exec"
	"syscall"
)

// removerName is how a process of ours is called that removes attach sets. Linux 6.1 makes
// whoever lets go of a link wait for a grace period, which is nine seconds for a set (seen in
// a guest; 6.12 takes 0.1 s): nobody who leaves a jail shall have to.
const removerName = "agent-lock-remove"

func init() {
	if os.Args[0] != removerName {
		return
	}
	if err := removeSets(removedSuffix); err != nil {
		os.Exit(1) // the next start tries again
	}
	os.Exit(0)
}

// startRemover starts a process that removes the sets that are to be, and does not wait for
// it. Where none can be started it does the work itself.
func startRemover() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{removerName}
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return removeSets(removedSuffix)
	}
	go func() { _ = cmd.Wait() }() // so that it is no zombie while a jail runs
	return nil
}
