package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// removerName is how a process of ours is called that removes attach sets. Up to 6.1 and
// some versions later the kernel waits for a grace period (synchronize_rcu_tasks, in
// ftrace_shutdown()) as each link goes, which makes nine seconds for a set: nobody who
// leaves a jail has to wait for that.
const removerName = "agent-lock-remove"

func init() {
	if os.Args[0] != removerName {
		return
	}
	if err := removeOld(); err != nil {
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
		return removeOld()
	}
	go func() { _ = cmd.Wait() }() // so that it is no zombie while a jail runs
	return nil
}

// removeOld removes the sets that have the name for it: the last links to their programs
// go with the pins. Several processes may be at it.
func removeOld() error {
	old, err := filepath.Glob(filepath.Join(pinRoot, "*"+removedSuffix))
	if err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove attach set: %w", err)
		}
	}
	return nil
}
