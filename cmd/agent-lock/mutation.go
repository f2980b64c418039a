//go:build mutation

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/jail"
	"github.com/agent-lock/agent-lock/report"
)

// mutationFlags adds --drop-hook, with which guest-mutate shows that each hook
// matters: without it, something leaks; --no-path-hooks, which takes the kernel for one
// without CONFIG_SECURITY_PATH; and --drop-layer for parts of the other layers and for
// forms of rules.
func mutationFlags(set *flag.FlagSet, f *runFlags) {
	set.Func("drop-hook", "", func(name string) error {
		f.attach.Drop = append(f.attach.Drop, name)
		return nil
	})
	set.BoolVar(&f.attach.NoPathHooks, "no-path-hooks", false, "")
	set.Func("drop-layer", "", func(part string) error {
		f.drop = append(f.drop, part)
		return nil
	})
}

func mutationVerbs() []verb { return []verb{{"guest-mutate", "", guestMutate}} }

// guestMutate leaves out one hook after the other and attacks the jail with the
// cases that the hook is there for, or runs the test that is. The result is ok when a
// case leaks: then the hook does something, and the case can fail.
func guestMutate(std stdio, args []string) int {
	status := 0
	try := func(name, part string, mutant func() report.Result) {
		if len(args) > 0 && !slices.Contains(args, part) {
			return
		}
		r := mutant()
		r.Kind, r.Family, r.Name = report.Program, "mutation", "without_"+name
		report.WriteLine(std.out, r)
		if r.Bad() {
			status = 1
		}
	}
	for _, hook := range bpf.Hooks() {
		name := hook.Name
		if hook.When == bpf.WithoutPathHooks {
			name += "_and_path_hooks"
		}
		try(name, hook.Name, func() report.Result { return mutate(hook) })
	}
	for _, p := range layerParts {
		try(p.name, p.name, func() report.Result { return mutateLayer(p.name, p.user, p.cases) })
	}
	for _, f := range ruleForms {
		try(f.name, f.name, func() report.Result { return mutateRule(f.name, f.cases, f.flags) })
	}
	return status
}

// layerParts are the parts of a jail without the BPF layer, each with cases that
// nothing else in such a jail stops.
var layerParts = []struct {
	name  string
	user  string // whom to attack as; "": the guest's user
	cases []string
}{
	{jail.DropFiles, "", []string{"traversal_absolute", "traversal_write", "change_unlink",
		"hardlink_create_read", "symlink_existing_file"}},
	{jail.DropScopes, "", []string{"socket_abstract_stream", "socket_abstract_datagram",
		"process_pidfd_passed_kill"}},
	{jail.DropMounts, "", []string{"change_chmod", "change_utimes", "change_setxattr"}},
	{jail.DropSeccomp, "", []string{"ns_user", "key_user_keyring", "watch_fanotify"}},
	{jail.DropCapabilities, "root", []string{"machine_address", "identity_immutable"}},
}

// ruleForms are forms of rules, each with cases that nothing else stops.
var ruleForms = []struct {
	name  string
	flags []string // {} is the project, beside which is outside
	cases []string
}{
	{jail.DropProtected, nil, []string{"planted_vscode", "planted_claude_settings"}},
	{jail.DropGit, nil, []string{"planted_hook_existing", "planted_git_config"}},
	{jail.DropDenied, nil, []string{"planted_env_read", "planted_env_nested"}},
	{jail.DropLinks, nil, []string{"hardlink_existing_write"}},
	// All that the arena has outside has such a name.
	{jail.DropNames, []string{"--rw={}/../outside", "--deny={}/../outside/j*"},
		[]string{"traversal_absolute", "traversal_write"}},
	{jail.DropFixed, []string{"--rw={}/../outside", "--rw={}/../outside/old-dir"},
		[]string{"change_rename_old"}},
	{jail.DropLabels, nil, []string{"key_users"}},
}

// mutateRule runs cases without a form of rules.
func mutateRule(form string, cases, flags []string) report.Result {
	args := []string{"--layers", "bpf", "--jail-flag", "--drop-layer=" + form}
	for _, flag := range flags {
		args = append(args, "--jail-flag", flag)
	}
	results, err := attackMutant(form, cases, args...)
	if err != nil {
		return report.Result{Outcome: report.Broken, Detail: err.Error()}
	}
	return judgeMutant(results, cases)
}

// mutateLayer runs cases without a part of the second layers.
func mutateLayer(part, user string, cases []string) report.Result {
	flags := []string{"--layers", "landlock,seccomp", "--jail-flag", "--drop-layer=" + part}
	if user != "" {
		flags = append(flags, "--user", user)
	}
	results, err := attackMutant(part, cases, flags...)
	if err != nil {
		return report.Result{Outcome: report.Broken, Detail: err.Error()}
	}
	return judgeMutant(results, cases)
}

// standsFor maps the inode_* hooks to the path_* hooks whose work they do on
// kernels that have none. The cases name those.
var standsFor = map[string][]string{
	"inode_unlink":  {"path_unlink"},
	"inode_rmdir":   {"path_rmdir"},
	"inode_mkdir":   {"path_mkdir"},
	"inode_create":  {"path_mknod"},
	"inode_mknod":   {"path_mknod"},
	"inode_symlink": {"path_symlink"},
	"inode_link":    {"path_link"},
	"inode_rename":  {"path_rename"},
	"inode_setattr": {"path_chmod", "path_chown", "path_truncate", "inode_setattr"},
}

// behind maps a hook that checks once more to the one before it. A case shows it when it is
// denied without that one, and leaks without both.
var behind = map[string]string{
	"bpf_map":              "bpf",
	"bpf_prog":             "bpf",
	"uring_sqpoll":         "file_open",
	"uring_override_creds": "file_open",
	"uring_cmd":            "socket_setsockopt",
	"inode_file_setattr":   "inode_file_getattr", // to set flags the kernel gets the old ones
}

// shownBy maps a hook to the guest test of package jail that shows it, where no case can:
// it must pass, and fail without the hook.
var shownBy = map[string]string{
	"sb_statfs":          "TestFreeSpace",
	"socket_post_create": "TestOwnSocket",
	"sock_graft":         "TestAcceptedSocket",
	"socket_listen":      "TestOwnListeners",
	"task_kill":          "TestOwnProcessGroup/kill-group",
	"task_setnice":       "TestOwnProcessGroup/renice-group",
	"task_setioprio":     "TestOwnProcessGroup/ionice-group",
	"key_alloc":          "TestOwnKey",
	"quotactl":           "TestQuotas",
	"task_free":          "TestBooksAreClosed/processes",
	"sk_free_security":   "TestBooksAreClosed/sockets",
}

// mutate shows what a hook is for, by cases of the user's, of root's, or by a test.
func mutate(hook bpf.Hook) report.Result {
	if test, ok := shownBy[hook.Name]; ok {
		return mutateTest(test, hook.Name)
	}
	r := mutateAs(ordinary, hook)
	if r.Outcome != report.Skipped && r.Outcome != report.Failed {
		return r
	}
	// Of the user's cases some are stopped by root's being another user.
	root := mutateAs(0, hook)
	if root.Outcome == report.Skipped && root.Outcome != r.Outcome {
		return r
	}
	root.Detail = "as root: " + root.Detail
	return root
}

// mutateAs runs the cases of a hook without that hook. Root's are run without the hook
// capable as well, which stops much of what others stop too: each has to hold alone.
func mutateAs(uid int, hook bpf.Hook) report.Result {
	names := []string{hook.Name}
	if hook.When == bpf.WithoutPathHooks {
		names = standsFor[hook.Name]
	}
	var cases []string
	for _, c := range adversary.For(uid, adversary.Cases()) {
		if slices.ContainsFunc(c.Hooks, func(h string) bool { return slices.Contains(names, h) }) {
			cases = append(cases, c.Name)
		}
	}
	if len(cases) == 0 {
		return report.Result{Outcome: report.Failed, Detail: "no case is there for it"}
	}
	flags := []string{"--layers", "bpf"}
	if uid == 0 {
		flags = append(flags, "--user", "root")
		if hook.Name != capableHook {
			flags = append(flags, without(capableHook)...)
		}
	}
	if hook.When == bpf.WithoutPathHooks {
		flags = append(flags, "--jail-flag", "--no-path-hooks")
	}
	first, ok := behind[hook.Name]
	if ok {
		flags = append(flags, without(first)...)
		results, err := attackMutant(first, cases, flags...)
		if err != nil {
			return report.Result{Outcome: report.Broken, Detail: err.Error()}
		}
		if cases = named(results, report.Denied); len(cases) == 0 {
			return report.Result{Outcome: report.Skipped,
				Detail: "without " + first + " no case of it is denied on this kernel"}
		}
	}
	results, err := attackMutant(hook.Name, cases, append(flags, without(hook.Name)...)...)
	if err != nil {
		return report.Result{Outcome: report.Broken, Detail: err.Error()}
	}
	r := judgeMutant(results, cases)
	if ok {
		r.Detail = "without " + first + " too: " + r.Detail
	}
	return r
}

func without(hook string) []string { return []string{"--jail-flag", "--drop-hook=" + hook} }

// mutateTest runs a test of package jail with and without a hook.
func mutateTest(test, hook string) report.Result {
	const program = "/bin/jail.test"
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	for _, try := range []struct{ env, want string }{
		{"", "--- PASS: " + test + " "},
		{"WITHOUT_HOOK=" + hook, "--- FAIL: " + test + " "},
	} {
		cmd := exec.Command(program, "-test.v", "-test.run", pattern)
		cmd.Env = append(os.Environ(), try.env)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			return report.Result{Outcome: report.Broken, Detail: fmt.Sprintf(
				"run %s: %v; make mutation puts it there", test, err)}
		}
		if !strings.Contains(string(out), try.want) {
			return report.Result{Outcome: report.Failed, Detail: fmt.Sprintf(
				"%s with %q: want %q in %q", test, try.env, try.want, out)}
		}
	}
	return report.Result{Outcome: report.OK, Detail: "fails " + test}
}

// judgeMutant wants a leak.
func judgeMutant(results []report.Result, cases []string) report.Result {
	leaked := named(results, report.Leaked)
	switch {
	case len(leaked) > 0:
		return report.Result{Outcome: report.OK, Detail: "leaks " + strings.Join(leaked, ", ")}
	case report.Count(results, report.Denied) == 0:
		return report.Result{Outcome: report.Skipped,
			Detail: "no case of it works on this kernel: " + strings.Join(cases, ", ")}
	}
	return report.Result{Outcome: report.Failed,
		Detail: "nothing leaks without it: " + strings.Join(cases, ", ")}
}

// named lists the results with an outcome.
func named(results []report.Result, outcome report.Outcome) []string {
	var names []string
	for _, r := range results {
		if r.Outcome == outcome {
			names = append(names, r.Name)
		}
	}
	return names
}

const capableHook = "capable"

// attackMutant attacks a jail from which something is left out.
func attackMutant(what string, cases []string, flags ...string) ([]report.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var out, stderr bytes.Buffer
	cmd := exec.Command(self, "adversary", "--json", "-",
		"--run", "^("+strings.Join(cases, "|")+")$")
	cmd.Args = append(cmd.Args, flags...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	runErr := cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == exitUsage {
		return nil, fmt.Errorf("attack without %s: %v: %s", what, runErr, stderr.String())
	}
	return report.ReadJSON(&out)
}
