package adversary

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	layerSource  = "D27 overlayfs"
	needsOverlay = "both directories on an overlay whose upper layer has a path"
)

// layers: ways to the outside that an overlay file system, or whatever else in the
// kernel acts with credentials that are not the process's own, could open. But for
// the core dump they need an arena on an overlay whose upper layer can be named.
var layers = []Case{
	{
		Name: "layer_read", Family: "layers", Source: layerSource,
		What:  "reads an outside file in the overlay's upper layer",
		Calls: "openat", Needs: needsOverlay,
		Hooks: opens, Setup: findLayer, Judge: tokenRead,
		Attack: func(t *Target) ([]byte, error) { return read(t.inLayer(t.Secret)) },
	},
	{
		Name: "layer_write", Family: "layers", Source: layerSource,
		What:  "overwrites an outside file in the overlay's upper layer",
		Calls: "openat, write", Needs: needsOverlay,
		Hooks: opens, Setup: findLayer, Judge: changed,
		Attack: func(t *Target) ([]byte, error) { return nil, scribble(t.inLayer(t.Secret), 0) },
	},
	{
		Name: "layer_rename", Family: "layers", Source: layerSource,
		What:  "renames an outside file in the overlay's upper layer",
		Calls: "renameat", Needs: needsOverlay,
		Hooks: []string{"path_rename"}, Setup: findLayer, Judge: layerMoved,
		Attack: func(t *Target) ([]byte, error) {
			from := t.inLayer(t.Secret)
			return nil, call("rename", unix.Rename(from, from+".moved"))
		},
	},
	{
		Name: "layer_link", Family: "layers", Source: layerSource,
		What: "links an outside file into the project in the overlay's upper layer, and " +
			"reads it through the overlay",
		Calls: "linkat, openat", Needs: needsOverlay,
		Hooks: []string{"path_link"}, Setup: findLayer, Judge: tokenRead,
		Attack: func(t *Target) ([]byte, error) {
			err := unix.Link(t.inLayer(t.Secret), t.inLayer(t.in("stolen")))
			if err != nil {
				return nil, call("link", err)
			}
			return read(t.in("stolen"))
		},
	},
	{
		Name: "overlay_link", Family: "layers", Source: layerSource,
		What:  "links an outside file into the project, on an overlay",
		Calls: "linkat, openat", Needs: needsOverlay,
		Hooks: []string{"path_link"}, Setup: findLayer, Judge: tokenRead,
		Attack: func(t *Target) ([]byte, error) {
			if err := unix.Link(t.Secret, t.in("stolen")); err != nil {
				return nil, call("link", err)
			}
			return read(t.in("stolen"))
		},
	},
	{
		Name: "core_dump", Family: "layers", Source: "D27 core(5)",
		What:  "has the kernel dump core in an outside directory",
		Calls: "prlimit64(RLIMIT_CORE), chdir, execve, kill",
		Needs: "a kernel.core_pattern that names a file in the working directory",
		Hooks: []string{"path_mknod", "file_open"}, Setup: plainCore, Judge: changed, Fresh: true,
		Attack: attackCoreDump,
	},
}

// inLayer is where the overlay that the arena is on keeps a file.
func (t *Target) inLayer(path string) string {
	return filepath.Join(t.Args["upper"], strings.TrimPrefix(path, t.Args["overlay"]))
}

// findLayer finds the upper layer of the overlay that the arena is on.
func findLayer(s *Scene) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var overlay, upper string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(super) < 3 || fields[3] != "/" {
			continue
		}
		point := strings.TrimSuffix(fields[4], "/") + "/"
		if !strings.HasPrefix(s.Target.Secret, point) || len(point) < len(overlay) {
			continue
		}
		overlay, upper = point, ""
		for _, option := range strings.Split(super[2], ",") {
			if dir, ok := strings.CutPrefix(option, "upperdir="); ok && super[0] == "overlay" {
				upper = dir
			}
		}
	}
	if upper == "" {
		return errors.New("the arena is not on an overlay with an upper layer")
	}
	s.Arg("overlay", strings.TrimSuffix(overlay, "/"))
	s.Arg("upper", upper)
	if _, err := os.Stat(s.Target.inLayer(s.Target.Secret)); err != nil {
		return fmt.Errorf("find the layer of the arena's overlay: %w", err)
	}
	return nil
}

// layerMoved looks for the renamed file where the layer is.
var layerMoved = Judge{"the file has another name in the layer", func(s *Scene) string {
	if _, err := os.Lstat(s.Target.inLayer(s.Target.Secret) + ".moved"); err == nil {
		return "the file has another name in the layer"
	}
	return ""
}}

// plainCore refuses machines that hand core dumps to a program, or to one directory.
func plainCore(*Scene) error {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err == nil && strings.ContainsAny(string(pattern), "|/@") {
		err = fmt.Errorf("core dumps go to %q", strings.TrimSpace(string(pattern)))
	}
	return err
}

// attackCoreDump starts a process in the outside directory and lets it crash. The
// kernel then opens a file there, with credentials that it made for the purpose.
func attackCoreDump(t *Target) ([]byte, error) {
	limit := &unix.Rlimit{Cur: 64 << 20, Max: 64 << 20}
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &now) == nil && now.Max < limit.Max {
		limit = &unix.Rlimit{Cur: now.Max, Max: now.Max}
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, limit); err != nil {
		return nil, call("setrlimit", err)
	}
	cmd := exec.Command(os.Args[0], attackerVerb, "crash")
	cmd.Dir = t.Outside
	cmd.Env = append(os.Environ(), "GOTRACEBACK=crash")
	err := cmd.Run()
	if _, statErr := os.Lstat(t.out("core")); statErr != nil {
		if names, _ := filepath.Glob(t.out("core*")); len(names) == 0 {
			return nil, fmt.Errorf("no core in the outside directory: %w (%v)", statErr, err)
		}
	}
	return nil, nil
}

// crash ends this process by a signal that dumps core.
func crash() int {
	_ = unix.Kill(os.Getpid(), unix.SIGABRT)
	select {}
}
