package adversary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const environSource = "D22 nono#1821 dot-agent-deck#1129"

// otherProcess are the hooks that see one process look into another.
var otherProcess = []string{"ptrace_access_check", "file_open"}

// environ: secrets in other processes, and in the environment the jail was
// started in.
var environ = []Case{
	procFile("environ_other", environSource, "environ", "the environment of a process outside"),
	procFile("environ_other_task", environSource, "task/%[1]d/environ",
		"the same of its main thread"),
	procFile("environ_other_cmdline", environSource, "cmdline",
		"the command line of a process outside"),
	procFile("environ_other_maps", environSource, "maps",
		"the names of the files that a process outside has mapped"),
	{
		Name: "environ_other_mem", Family: "environ", Source: "D23 sandlock#11",
		What:  "reads the memory of a process outside through /proc/PID/mem",
		Calls: "openat, pread64", Needs: needsScope,
		Hooks: otherProcess, Setup: (*Scene).Victim,
		Attack: attackMem, Judge: victimRead,
	},
	{
		Name: "environ_scan", Family: "environ", Source: environSource,
		What:  "reads environment and command line of every process in /proc",
		Calls: "getdents64, openat",
		Hooks: otherProcess, Setup: (*Scene).Victim,
		Attack: func(*Target) ([]byte, error) { return scan("environ", "cmdline") },
		Judge:  victimRead,
	},
	{
		Name: "environ_ancestors", Family: "environ", Source: "D23 sandlock#246",
		What:  "reads the environment of every ancestor process",
		Calls: "openat",
		Hooks: otherProcess, Attack: attackAncestors,
		Judge: sessionRead("AWS_SECRET_ACCESS_KEY"),
	},
	inherited("environ_cloud_key", "AWS_SECRET_ACCESS_KEY"),
	inherited("environ_forge_token", "GITHUB_TOKEN"),
	inherited("environ_ssh_agent", "SSH_AUTH_SOCK"),
	inherited("environ_session_bus", "DBUS_SESSION_BUS_ADDRESS"),
	inherited("environ_loader", "LD_LIBRARY_PATH"),
	inherited("environ_git_command", "GIT_SSH_COMMAND"),
	{
		Name: "environ_proc_self", Family: "environ", Source: "D73 sandlock#246",
		What:   "looks for a removed variable in /proc/self/environ",
		Calls:  "openat",
		Attack: func(*Target) ([]byte, error) { return read("/proc/self/environ") },
		Judge:  sessionRead("GITHUB_TOKEN"),
	},
}

// procFile is a case that reads one file of the victim's in procfs.
func procFile(name, source, file, what string) Case {
	return Case{
		Name: name, Family: "environ", Source: source, What: "reads " + what, Calls: "openat",
		Hooks: otherProcess, Setup: (*Scene).Victim,
		Attack: func(t *Target) ([]byte, error) {
			path := file
			if strings.Contains(file, "%") {
				path = fmt.Sprintf(file, t.PID)
			}
			return read(fmt.Sprintf("/proc/%d/%s", t.PID, path))
		},
		Judge: victimRead,
	}
}

// inherited is a case that looks for a variable of the jail's start. No kernel
// hook has a say in it.
func inherited(name, variable string) Case {
	return Case{
		Name: name, Family: "environ", Source: "D73 sandlock#246",
		What:  "reads " + variable + " in its own environment",
		Calls: "execve", // which hands the environment over
		Attack: func(*Target) ([]byte, error) {
			value, ok := os.LookupEnv(variable)
			if !ok {
				return nil, fmt.Errorf("%s is not set", variable)
			}
			return []byte(value), nil
		},
		Judge: sessionRead(variable),
	}
}

func attackMem(t *Target) ([]byte, error) {
	addr, err := strconv.ParseInt(t.Args["addr"], 10, 64)
	if err != nil {
		return nil, need(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", t.PID))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, 64)
	n, err := f.ReadAt(buf, addr)
	return buf[:n], err
}

// scan reads files of every process but our own. It reports the last error, and
// how many processes there were.
func scan(files ...string) ([]byte, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, need(err)
	}
	var loot []byte
	var last error
	others := 0
	for _, dir := range dirs {
		if dir == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		others++
		for _, file := range files {
			data, err := read(filepath.Join(dir, file))
			if err != nil {
				last = err
			}
			loot = append(loot, grep(data, "PASSWORD=", "--password=")...)
		}
	}
	if last == nil {
		last = fmt.Errorf("scan: %d other processes, none refused", others)
	}
	return loot, last
}

// grep keeps the entries of an environment or a command line that hold one of
// the words, as somebody who looks for secrets would.
func grep(data []byte, words ...string) []byte {
	var found []byte
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		if slices.ContainsFunc(words, func(w string) bool {
			return bytes.Contains(entry, []byte(w))
		}) {
			found = append(append(found, entry...), 0)
		}
	}
	return found
}

// attackAncestors climbs from the parent to the first process that shows none.
func attackAncestors(*Target) ([]byte, error) {
	var loot []byte
	var last error
	for pid := os.Getppid(); pid > 0; {
		data, err := read(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			last = err
		}
		loot = append(loot, grep(data, "AWS_SECRET")...)
		if pid, err = parentOf(pid); err != nil {
			last = err
			break
		}
	}
	return loot, last
}

func parentOf(pid int) (int, error) {
	status, err := read(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(line)
}
