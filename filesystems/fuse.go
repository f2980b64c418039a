package filesystems

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// server is our program in the folder passthrough: it gets /dev/fuse as descriptor 3 and
// the source as argument, and prints whether the kernel has passthrough.
const server = "passthrough"

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
	program, err := exec.LookPath(server)
	if err != nil {
		return fmt.Errorf("no program %s; make filesystems builds it", server)
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
	serve := exec.Command(program, source)
	serve.ExtraFiles, serve.Stderr = []*os.File{dev}, os.Stderr
	told, err := serve.StdoutPipe()
	if err != nil {
		return err
	}
	if err := serve.Start(); err != nil {
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
