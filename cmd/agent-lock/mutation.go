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
// without CONFIG_SECURITY_PATH; and --drop-layer, --drop-hook for the other layers and for
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
// cases that the hook is there for. The result is ok when one of them leaks: then
// the hook does something, and the case can fail.
func guestMutate(std stdio, args []string) int {
	status := 0
	for _, hook := range bpf.Hooks() {
		if len(args) > 0 && !slices.Contains(args, hook.Name) {
			continue
		}
		r := mutate(hook, false)
		if r.Outcome == report.Skipped || r.Outcome == report.Failed {
			// Of the user's cases some are stopped by root's being another user.
			root := mutate(hook, true)
			if root.Outcome == report.OK || r.Outcome == report.Skipped &&
				root.Outcome != report.Skipped {
				r = root
			}
		}
		r.Kind, r.Family = report.Program, "mutation"
		r.Name = "without_" + hook.Name
		if hook.When == bpf.WithoutPathHooks {
			r.Name += "_and_path_hooks"
		}
		report.WriteTable(std.out, []report.Result{r})
		if r.Bad() {
			status = 1
		}
	}
	for _, part := range layerParts {
		if len(args) > 0 && !slices.Contains(args, part.name) {
			continue
		}
		r := mutateLayer(part.name, part.cases)
		r.Kind, r.Family, r.Name = report.Program, "mutation", "without_"+part.name
		report.WriteTable(std.out, []report.Result{r})
		if r.Bad() {
			status = 1
		}
	}
	for _, form := range ruleForms {
		if len(args) > 0 && !slices.Contains(args, form.name) {
			continue
		}
		r := mutateRule(form.name, form.cases, form.flags)
		r.Kind, r.Family, r.Name = report.Program, "mutation", "without_"+form.name
		report.WriteTable(std.out, []report.Result{r})
		if r.Bad() {
			status = 1
		}
	}
	return status
}

// layerParts are the parts of a jail without the BPF layer, each with cases that
// nothing else in such a jail stops.
var layerParts = []struct {
	name  string
	cases []string
}{
	{jail.DropFiles, []string{"traversal_absolute", "traversal_write", "change_unlink",
		"hardlink_create_read", "symlink_existing_file"}},
	{jail.DropScopes, []string{"socket_abstract_stream", "socket_abstract_datagram",
		"process_pidfd_passed_kill"}},
	{jail.DropMounts, []string{"change_chmod", "change_utimes", "change_setxattr"}},
	{jail.DropSeccomp, []string{"ns_user", "key_user_keyring", "watch_fanotify"}},
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
	return judgeMutant(results, cases, true)
}

// mutateLayer runs cases without a part of the second layers.
func mutateLayer(part string, cases []string) report.Result {
	results, err := attackMutant(part, cases, "--layers", "landlock,seccomp",
		"--jail-flag", "--drop-layer="+part)
	if err != nil {
		return report.Result{Outcome: report.Broken, Detail: err.Error()}
	}
	return judgeMutant(results, cases, true)
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

// mutate runs the cases of a hook without that hook. Root's are run without the hook
// capable as well, which stops much of what others stop too: each has to hold alone.
func mutate(hook bpf.Hook, asRoot bool) report.Result {
	names := []string{hook.Name}
	if hook.When == bpf.WithoutPathHooks {
		names = standsFor[hook.Name]
	}
	var alone, shared []string
	uid := ordinary
	if asRoot {
		uid = 0
	}
	for _, c := range adversary.For(uid, adversary.Cases()) {
		if asRoot && hook.Name != capableHook {
			c.Hooks = slices.DeleteFunc(slices.Clone(c.Hooks), func(h string) bool {
				return h == capableHook
			})
		}
		switch {
		case len(c.Hooks) == 1 && slices.Contains(names, c.Hooks[0]):
			alone = append(alone, c.Name)
		case slices.ContainsFunc(c.Hooks, func(h string) bool { return slices.Contains(names, h) }):
			shared = append(shared, c.Name)
		}
	}
	cases := append(alone, shared...)
	if len(cases) == 0 {
		return report.Result{Outcome: report.Skipped, Detail: "no case is stopped by it alone yet"}
	}
	flags := []string{"--layers", "bpf", "--jail-flag", "--drop-hook=" + hook.Name}
	if hook.When == bpf.WithoutPathHooks {
		flags = append(flags, "--jail-flag", "--no-path-hooks")
	}
	if asRoot {
		flags = append(flags, "--user", "root")
		if hook.Name != capableHook {
			flags = append(flags, "--jail-flag", "--drop-hook="+capableHook)
		}
	}
	results, err := attackMutant(hook.Name, cases, flags...)
	if err != nil {
		return report.Result{Outcome: report.Broken, Detail: err.Error()}
	}
	r := judgeMutant(results, cases, len(alone) > 0)
	if asRoot {
		r.Detail = "as root: " + r.Detail
	}
	return r
}

// judgeMutant wants a leak. alone says that some case is stopped by nothing else.
func judgeMutant(results []report.Result, cases []string, alone bool) report.Result {
	var leaked []string
	for _, r := range results {
		if r.Outcome == report.Leaked {
			leaked = append(leaked, r.Name)
		}
	}
	switch {
	case len(leaked) > 0:
		return report.Result{Outcome: report.OK, Detail: "leaks " + strings.Join(leaked, ", ")}
	case report.Count(results, report.Denied) == 0:
		return report.Result{Outcome: report.Skipped,
			Detail: "no case of it works on this kernel: " + strings.Join(cases, ", ")}
	case !alone:
		return report.Result{Outcome: report.Skipped,
			Detail: "other hooks stop its cases too: " + strings.Join(cases, ", ")}
	}
	return report.Result{Outcome: report.Failed,
		Detail: "nothing leaks without it: " + strings.Join(cases, ", ")}
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
