package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/report"
)

// Whole programs on a tree of files. They come from the host, where they are found
// there; what is missing is not measured.

// workload is a program that is run as the jail's command would run it.
type workload struct {
	name string
	dir  string // of the project
	argv []string
	runs int
	// prepare is called before each run.
	prepare func(dir string) error
}

var workloads = []workload{
	{"git status", "tree", []string{"git", "status", "--porcelain"}, 3, nil},
	{"grep -r", "tree", []string{"grep", "-r", "no such words", "."}, 3, nil},
	{"tar -c", "tree", []string{"tar", "-c", "-f", "../tree.tar", "."}, 3, nil},
	{"go build", "program", []string{benchGo + "/bin/go", "build", "-o", "program", "."}, 1,
		func(dir string) error {
			text := fmt.Appendf(nil, benchMain, time.Now().UnixNano()) // no cache has it
			return os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644)
		}},
}

// makeTree copies the sources into the project, and makes a repository of them where
// there is git.
func makeTree(dir string) error {
	if err := os.CopyFS(dir, os.DirFS(benchSources)); err != nil {
		return fmt.Errorf("%w (is this guest one of vmtest --bench?)", err)
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, benchUser, benchUser)
	})
	if _, missing := exec.LookPath("git"); err != nil || missing != nil {
		return err
	}
	for _, args := range []string{"init -q", "add -A",
		"-c user.name=dev -c user.email=dev@guest commit -q -m tree"} {
		cmd := exec.Command("git", strings.Fields(args)...)
		cmd.Dir = filepath.Join(dir, "tree")
		cmd.Env = append(os.Environ(), "HOME=/home/dev")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: benchUser, Gid: benchUser},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args, err, out)
		}
	}
	return nil
}

// benchWork measures the workloads in the setting that it finds itself in.
func benchWork(w io.Writer, setting, project string, wanted *regexp.Regexp) error {
	for _, work := range workloads {
		if _, err := exec.LookPath(work.argv[0]); err != nil || !wanted.MatchString(work.name) {
			continue
		}
		var times []time.Duration
		for range work.runs + 1 { // the first fills caches
			took, err := work.time(project)
			if err != nil {
				return fmt.Errorf("%s: %w", work.name, err)
			}
			times = append(times, took)
		}
		times = times[1:]
		slices.Sort(times)
		err := json.NewEncoder(w).Encode(report.Result{Kind: report.Bench, Name: work.name,
			Layer: setting, Outcome: report.OK, Value: float64(times[len(times)/2]),
			Unit: "ns/op"})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w workload) time(project string) (time.Duration, error) {
	dir := filepath.Join(project, w.dir)
	if w.prepare != nil {
		if err := w.prepare(dir); err != nil {
			return 0, err
		}
	}
	cmd := exec.Command(w.argv[0], w.argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), goBuildEnv(project)...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	nothingFound := w.argv[0] == "grep" && cmd.ProcessState.ExitCode() == 1
	if err != nil && !nothingFound {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return took, nil
}
