package filesystems

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ServeVerb is the verb of our program that calls [ServeFUSE], with /dev/fuse as
// descriptor 3 and the source as argument. It prints what it tells.
const ServeVerb = "filesystem-serve"

func makeFuse(at string, fill func(string) error) error {
	source := at + ".source"
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	if err := makeTmpfs(source, fill); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return errors.New("the kernel has no fuse")
	}
	out, err := exec.Command("bindfs", "-o", "allow_other", source, at).CombinedOutput()
	if err != nil {
		return fmt.Errorf("bindfs: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// makePassthrough has a server of our own, since none that is packaged asks for it.
func makePassthrough(at string, fill func(string) error) error {
	source := at + ".source"
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	if err := makeTmpfs(source, fill); err != nil {
		return err
	}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return errors.New("the kernel has no fuse")
	}
	defer dev.Close()
	options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other,"+
		"default_permissions", dev.Fd())
	if err := mount("passthrough", at, "fuse", options); err != nil {
		return err
	}
	server := exec.Command("/proc/self/exe", ServeVerb, source)
	server.ExtraFiles, server.Stderr = []*os.File{dev}, os.Stderr
	told, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	has := false
	if _, err := fmt.Fscan(told, &has); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	if !has {
		return errors.New("the kernel has no passthrough for FUSE")
	}
	return nil
}
