package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/filesystems"
	"github.com/agent-lock/agent-lock/report"
	"github.com/agent-lock/agent-lock/vmtest"
)

// attackedFileSystems are those on which the whole suite attacks the jail too: one
// that has everything, and those that work on others behind the scenes.
var attackedFileSystems = []string{"ext4", "overlay-ext4", "overlay-root", "fuse-passthrough"}

// forFileSystems is what the guest needs to make file systems: of the packages no more
// than a few programs, since all of it is unpacked in memory.
func (e *equipment) forFileSystems(cfg *vmtest.Config) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "agent-lock-share-")
	if err != nil {
		return nil, err
	}
	e.shares = append(e.shares, vmtest.Share{Host: dir, Guest: filesystems.ShareTag})
	e.packages = append(e.packages,
		"git:usr/bin/git", "git:usr/bin/git-upload-pack", "git:usr/lib/git-core/git",
		"git:usr/share/git-core/templates/info", "dash:bin",
		"e2fsprogs:sbin/mke2fs", "e2fsprogs:sbin/mkfs.ext4", "e2fsprogs:etc",
		"xfsprogs:sbin/mkfs.xfs", "btrfs-progs:bin/mkfs.btrfs", "btrfs-progs:sbin/mkfs.btrfs",
		"bindfs:usr/bin")
	e.modules = append(e.modules, "loop", "ext4", "xfs", "btrfs", "overlay", "fuse")
	if cfg.MemoryMB == 0 {
		cfg.MemoryMB = 1536
	}
	return func() { os.RemoveAll(dir) }, nil
}

func (f *vmtestFlags) fileSystemFlags(fs *flag.FlagSet) {
	fs.BoolVar(&f.filesystems, "filesystems", false, "")
	fs.StringVar(&f.attack, "attack", "", "")
}

func (f vmtestFlags) checkFileSystemFlags() error {
	switch {
	case f.attack != "" && !f.filesystems:
		return errors.New("--attack is for --filesystems; else the jail is attacked anyway")
	case f.filesystems && (f.bench || f.demo || len(f.steps) > 0):
		return errors.New("--filesystems goes neither with --step, --demo nor --bench")
	}
	if f.attack != "" {
		_, err := selectCases(f.attack)
		return err
	}
	return nil
}

func (f vmtestFlags) fileSystemStep() vmtest.Step {
	argv := []string{"agent-lock", "guest-filesystems", f.run, f.attack}
	return vmtest.Step{Name: "filesystems", Argv: argv, Results: true, Quiet: !f.verbose,
		Timeout: f.timeout, Check: vmtest.BadIsStatus}
}

// fileSystemsBase is where the guest mounts them.
const fileSystemsBase = "/srv/filesystems"

// guestFileSystems is the step, in a guest and as root.
func guestFileSystems(std stdio, args []string) int {
	if name, err := os.Hostname(); err != nil || name != "guest" || os.Getuid() != 0 {
		return std.errorf("guest-filesystems: works only as root in a guest of vmtest")
	}
	if len(args) != 2 {
		return std.errorf("guest-filesystems: want which file systems, and which attacks")
	}
	only, err := regexp.Compile(args[0])
	if err != nil {
		return std.errorf("guest-filesystems: %v", err)
	}
	bad, ran := 0, 0
	tell := func(results ...report.Result) error {
		for _, r := range results {
			if r.Bad() {
				bad++
			}
		}
		return report.WriteJSON(std.out, results...)
	}
	names, _ := filesystems.Kinds()
	for _, name := range names {
		if !only.MatchString(name) {
			continue
		}
		ran++
		began := time.Now()
		if err := tryFileSystem(std, name, args[1], tell); err != nil {
			return std.errorf("guest-filesystems: %s: %v", name, err)
		}
		fmt.Fprintf(std.err, "%s: %.1f s\n", name, time.Since(began).Seconds())
	}
	if ran == 0 {
		return std.errorf("guest-filesystems: no file system matches %q", args)
	}
	return min(bad, 1)
}

// tryFileSystem uses one file system in the jail and outside, and attacks the jail there.
func tryFileSystem(std stdio, name, attack string,
	tell func(...report.Result) error) error {
	place, err := mountPlace(name)
	if err != nil {
		return tell(filesystems.Lacking(name, err.Error())...)
	}
	outside, err := findings(std, place, "out")
	if err != nil {
		return fmt.Errorf("outside the jail: %w", err)
	}
	inside, err := findings(std, place, "in", "/bin/agent-lock", "--denials", "off",
		place.Project("in"), "--")
	if err != nil {
		return fmt.Errorf("in the jail: %w", err)
	}
	if err := tell(filesystems.Compare(name, outside, inside)...); err != nil {
		return err
	}
	if attack == "" || !slices.Contains(attackedFileSystems, name) {
		return nil
	}
	return attackOn(std, place, attack, tell)
}

func mountPlace(name string) (filesystems.Place, error) {
	if err := os.MkdirAll(fileSystemsBase, 0o755); err != nil {
		return filesystems.Place{}, err
	}
	return filesystems.Mount(name, fileSystemsBase, 1000, 1000)
}

// findings runs the checks in one of a place's projects; jail is put before the command.
func findings(std stdio, p filesystems.Place, which string,
	jail ...string) ([]filesystems.Finding, error) {
	user := 0
	if len(jail) == 0 {
		user = ordinary
	}
	argv := append(jail, "/bin/agent-lock", "filesystem-check", p.Tried(which))
	cmd := placeCommand(p.Root, user, argv)
	cmd.Stderr = std.err
	out, runErr := cmd.Output()
	var found []filesystems.Finding
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var f filesystems.Finding
		err := d.Decode(&f)
		if errors.Is(err, io.EOF) {
			return found, runErr
		}
		if err != nil {
			return nil, errors.Join(runErr, err)
		}
		found = append(found, f)
	}
}

// rootVerb is the hidden verb that runs a command as a user in another root directory.
const rootVerb = "filesystem-root"

// placeCommand is a command as a user, where a place is.
func placeCommand(root string, user int, argv []string) *exec.Cmd {
	if root != "" {
		argv = append([]string{"/bin/agent-lock", rootVerb, root, strconv.Itoa(user)}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	if root == "" && user != 0 {
		id := uint32(user)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	}
	return cmd
}

func inRoot(std stdio, args []string) int {
	if len(args) < 3 {
		return std.errorf("%s: want a directory, a user's id and a command", rootVerb)
	}
	user, err := strconv.Atoi(args[1])
	if err != nil {
		return std.errorf("%s: %v", rootVerb, err)
	}
	if err := filesystems.EnterRoot(args[0]); err != nil {
		return std.errorf("%s: %v", rootVerb, err)
	}
	cmd := placeCommand("", user, args[2:])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, std.out, std.err
	if err := cmd.Run(); cmd.ProcessState == nil {
		return std.errorf("%s: %v", rootVerb, err)
	}
	return cmd.ProcessState.ExitCode()
}

// checkFileSystem is the hidden verb filesystem-check: it runs in the jail, and outside.
func checkFileSystem(std stdio, args []string) int {
	if len(args) != 1 {
		return std.errorf("filesystem-check: want one directory")
	}
	out := json.NewEncoder(std.out)
	err := filesystems.Try(args[0], func(f filesystems.Finding) error { return out.Encode(f) })
	if err != nil {
		return std.errorf("filesystem-check: %v", err)
	}
	return 0
}

// attackOn runs the adversary suite with its arena on a place.
func attackOn(std stdio, p filesystems.Place, cases string,
	tell func(...report.Result) error) error {
	cmd := placeCommand(p.Root, 0, []string{"/bin/agent-lock", "adversary", "--json", "-",
		"--run", cases, "--arena", p.Project("in")})
	cmd.Stderr = std.err
	out, runErr := cmd.Output()
	n := 0
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var r report.Result
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(runErr, err)
		}
		n++
		r.Jail += " on " + p.Name
		r.Layer = p.Name // shown beside the case's name
		if err := tell(r); err != nil {
			return err
		}
	}
	if n == 0 {
		return fmt.Errorf("the suite gave no result: %w", runErr)
	}
	return nil
}
