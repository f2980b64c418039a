package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/agent-lock/agent-lock/vmtest"
)

// What the benchmark's programs work on is real: parts of Go's own sources, and a
// program that Go's own toolchain builds. Both come from the Go installation of the
// machine that starts the guest.

// Where the guest finds them.
const (
	benchSources = "/usr/local/src/bench"
	benchGo      = "/usr/local/go"
)

// benchMemoryMB holds the sources twice and the toolchain.
const benchMemoryMB = 2048

// benchFolders of Go's sources are the tree that is searched and packed.
var benchFolders = []string{"net", "os", "encoding", "go", "text"}

// benchPrograms are the host's programs that the benchmark runs in the guest.
var benchPrograms = []string{"bwrap", "git", "grep", "tar"}

// benchTools are what go build starts.
var benchTools = []string{"compile", "link", "asm"}

const benchMain = `package main

import "fmt"

func main() { fmt.Println("build", %d) }
`

// forBench makes the tree that the guest gets.
func forBench(cfg *vmtest.Config) (remove func(), err error) {
	root, err := os.MkdirTemp("", "agent-lock-bench-")
	if err != nil {
		return nil, err
	}
	remove = func() { os.RemoveAll(root) }
	if err := equipBench(root); err != nil {
		remove()
		return nil, fmt.Errorf("prepare benchmark: %w", err)
	}
	cfg.Trees = append(cfg.Trees, vmtest.Tree{Host: root})
	return remove, nil
}

func equipBench(root string) error {
	goCommand := func(dir string, args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), goBuildEnv(filepath.Join(root, benchSources))...)
		out, err := cmd.CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			return "", errors.New("it works on Go's own sources; install Go")
		}
		if err != nil {
			return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out)), nil
	}
	from, err := goCommand(root, "env", "GOROOT")
	if err != nil {
		return err
	}
	program := filepath.Join(root, benchSources, "program")
	if err := os.MkdirAll(program, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"go.mod": "module program\n\ngo 1.26\n", "main.go": fmt.Sprintf(benchMain, 0),
	} {
		if err := os.WriteFile(filepath.Join(program, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	// So that the guest compiles and links the program, and not all that it imports.
	if _, err := goCommand(program, "build", "-o", os.DevNull, "."); err != nil {
		return err
	}
	packages, err := goCommand(program, "list", "-deps", "-f", "{{if .Standard}}{{.Dir}}{{end}}")
	if err != nil {
		return err
	}
	return copyGo(root, from, strings.Fields(packages))
}

// goBuildEnv keeps a build apart from its user's settings, and its cache in dir.
func goBuildEnv(dir string) []string {
	return []string{
		"GOCACHE=" + filepath.Join(dir, "cache"), "GOFLAGS=-trimpath", "GOPROXY=off",
		"GOTOOLCHAIN=local", "GOTELEMETRY=off", "GOENV=off", "CGO_ENABLED=0", "GOWORK=off",
	}
}

// copyGo copies what a build of packages and the benchmark's tree need.
func copyGo(root, from string, packages []string) error {
	to := filepath.Join(root, benchGo)
	paths := []string{"VERSION", "go.env", "bin/go"}
	for _, tool := range benchTools {
		paths = append(paths, "pkg/tool/linux_amd64/"+tool)
	}
	for _, path := range paths {
		if err := copyFile(filepath.Join(from, path), filepath.Join(to, path)); err != nil {
			return err
		}
	}
	const include = "pkg/include" // of the assembler
	if err := copyFiles(filepath.Join(from, include), filepath.Join(to, include)); err != nil {
		return err
	}
	for _, dir := range packages {
		path, err := filepath.Rel(from, dir)
		if err != nil {
			return err
		}
		if err := copyFiles(dir, filepath.Join(to, path)); err != nil {
			return err
		}
	}
	for _, folder := range benchFolders {
		err := os.CopyFS(filepath.Join(root, benchSources, "tree", folder),
			os.DirFS(filepath.Join(from, "src", folder)))
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFiles copies the files of one directory.
func copyFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm()|0o200)
}
