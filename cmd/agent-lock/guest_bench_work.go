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

// workloads are run in the tree, as the jail's command would run them.
var workloads = []struct {
	name string
	argv []string
}{
	{"git status", []string{"git", "status", "--porcelain"}},
	{"grep -r", []string{"grep", "-r", "no such words", "."}},
	{"tar -c", []string{"tar", "-c", "-f", "../tree.tar", "."}},
}

// workRuns is how often a workload is timed; the median counts.
const workRuns = 3

const (
	treeFolders = 20
	treeFiles   = 12 // in each folder
)

// makeTree makes the files, and a repository of them where there is git.
func makeTree(dir string) (string, error) {
	tree := filepath.Join(dir, "tree")
	text := strings.Repeat("what a source file has in a line of its text\n", 60)
	for i := range treeFolders {
		folder := filepath.Join(tree, fmt.Sprintf("package-%d", i%4), fmt.Sprintf("part-%d", i))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", err
		}
		for j := range treeFiles {
			path := filepath.Join(folder, fmt.Sprintf("file-%d.txt", j))
			text := fmt.Appendf(nil, "%d %d\n%s", i, j, text)
			if err := os.WriteFile(path, text, 0o644); err != nil {
				return "", err
			}
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, benchUser, benchUser)
	})
	if _, missing := exec.LookPath("git"); err != nil || missing != nil {
		return tree, err
	}
	for _, args := range []string{"init -q", "add -A",
		"-c user.name=dev -c user.email=dev@guest commit -q -m tree"} {
		cmd := exec.Command("git", strings.Fields(args)...)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "HOME=/home/dev")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: benchUser, Gid: benchUser},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("git %s: %w: %s", args, err, out)
		}
	}
	return tree, nil
}

// benchWork measures the workloads in the setting that it finds itself in.
func benchWork(w io.Writer, setting, tree string, wanted *regexp.Regexp) error {
	for _, work := range workloads {
		if _, err := exec.LookPath(work.argv[0]); err != nil || !wanted.MatchString(work.name) {
			continue
		}
		var times []time.Duration
		for range workRuns + 1 { // the first fills caches
			cmd := exec.Command(work.argv[0], work.argv[1:]...)
			cmd.Dir = tree
			began := time.Now()
			out, err := cmd.CombinedOutput()
			times = append(times, time.Since(began))
			nothingFound := work.argv[0] == "grep" && cmd.ProcessState.ExitCode() == 1
			if err != nil && !nothingFound {
				return fmt.Errorf("%s: %w: %s", work.name, err, out)
			}
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
