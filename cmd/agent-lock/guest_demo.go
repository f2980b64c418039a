package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const demoHome, demoProject = "/home/dev", "/home/dev/proj"

// guestDemo shows the main job on a guest's terminal: commands that work in the
// project and are refused outside, with what the jail says about it.
func guestDemo(std stdio, args []string) int {
	if len(args) > 0 {
		return std.errorf("guest-demo takes no arguments")
	}
	if err := demoFiles(); err != nil {
		return std.errorf("prepare the demonstration: %v", err)
	}
	// The first jail attaches the programs; the shown ones find them there.
	keeper := exec.Command("agent-lock", demoProject, "--",
		"agent-lock", "bench-worker", "wait", demoProject)
	err := besideJail(keeper, func() {
		fmt.Fprint(std.out, "\nEvery program of yours can read your key:\n\n")
		show(std, "cat ~/.ssh/id_ed25519")
		fmt.Fprint(std.out, "\nIn a jail the project works as before:\n\n")
		show(std, "sudo agent-lock ~/proj -- cat ~/proj/README")
		show(std, "sudo agent-lock ~/proj -- touch ~/proj/new")
		show(std, "sudo agent-lock ~/proj -- ls ~/proj")
		fmt.Fprint(std.out, "\nand nothing else is there:\n\n")
		show(std, "sudo agent-lock ~/proj -- cat ~/.ssh/id_ed25519")
		show(std, "sudo agent-lock ~/proj -- cat ~/proj/link-to-the-key")
		show(std, "sudo agent-lock ~/proj -- touch ~/.bashrc")
		show(std, "sudo agent-lock ~/proj -- ls ~")
		fmt.Fprint(std.out, "\nwhat it needs, you give it:\n\n")
		show(std, "sudo agent-lock --ro ~/notes ~/proj -- cat ~/notes")
		fmt.Fprintln(std.out)
	})
	if err != nil {
		return std.errorf("run the demonstration: %v", err)
	}
	return 0
}

// demoFiles makes the user's home directory, and the commands to look at it.
func demoFiles() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for name := range applets {
		link := filepath.Join("/bin", name)
		if err := os.Symlink(self, link); err != nil && !os.IsExist(err) {
			return err
		}
	}
	for path, text := range map[string]string{
		demoProject + "/README":        "my project\n",
		demoHome + "/.ssh/id_ed25519":  "-----BEGIN OPENSSH PRIVATE KEY-----\n",
		demoHome + "/notes":            "my notes\n",
		demoHome + "/.bashrc":          "",
		demoProject + "/src/main.go":   "package main\n",
		demoHome + "/.aws/credentials": "secret\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	link := demoProject + "/link-to-the-key"
	if err := os.Symlink(demoHome+"/.ssh/id_ed25519", link); err != nil && !os.IsExist(err) {
		return err
	}
	return filepath.WalkDir(demoHome, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, benchUser, benchUser)
	})
}

// show prints a command line as a shell would show it, runs it and prints what
// it says.
func show(std stdio, line string) {
	fmt.Fprintf(std.out, "  $ %s\n", line)
	words := strings.Fields(strings.TrimPrefix(line, "sudo "))
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, "~"); ok {
			words[i] = demoHome + rest
		}
	}
	cmd := exec.Command(words[0], words[1:]...)
	out, err := cmd.CombinedOutput()
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		fmt.Fprintf(std.out, "    %s\n", lines.Text())
	}
	if err != nil && cmd.ProcessState == nil {
		fmt.Fprintf(std.out, "    %v\n", err)
	}
}
