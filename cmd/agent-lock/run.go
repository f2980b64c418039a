package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/jail"
	"github.com/agent-lock/agent-lock/policy"
)

const runUsage = `usage: sudo agent-lock [flags] DIR [-- COMMAND...]

Runs COMMAND (default: your shell), jailed in the project directory DIR, as the user
who called sudo.

  --ro PATH        let it read PATH (repeatable, as are the next five)
  --rw PATH        let it read, write and execute below PATH
  --exec PATH      let it read and execute PATH
  --deny PATH      hide PATH, also below one that is allowed
  --protect NAME   keep what is called NAME anywhere in DIR from being changed, as
                   .git/hooks, .vscode and others are
  --socket PATH    let it connect to the host's Unix socket PATH (repeatable)
  --net NETWORK    whom it may talk to: web (default; TCP 80 and 443 of other
                   machines, DNS), none, or host (everybody); never link-local
                   and metadata addresses
  --user NAME      run it as NAME instead; root is root in the jail, and nowhere else
  --env NAME       pass the variable NAME on; NAME=VALUE sets it
  --hardlinks MODE for files in DIR that have another name, which may be outside:
                   allow, readonly (default) or deny
  --outside LOOK   what is outside looks missing (hide, default) or refused (deny)
  --denials WHEN   print denials live, at the end, or off
  --log FILE       append denials to FILE, one JSON object a line
  --layers LIST    what holds it, of bpf, landlock, seccomp and view, or all of
                   them; default bpf,seccomp
  -v               say how far they go on this kernel

Example: sudo agent-lock --ro ~/.npmrc ~/proj -- npm test
`

// runFlags are the flags of the jail verb.
type runFlags struct {
	rules     []func(p *policy.Policy, home string) error
	hardlinks string
	network   string
	outside   string
	env       []string
	user      string
	denials   string
	log       string
	layers    string
	verbose   bool
	version   bool
	attach    bpf.SetOptions // changed only in binaries built with -tags mutation
	drop      []string       // likewise
}

func parseRun(args []string) (runFlags, []string, error) {
	var f runFlags
	set := flag.NewFlagSet("agent-lock", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for name, rights := range map[string]policy.Rights{
		"ro": policy.Read, "exec": policy.Read | policy.Execute,
		"rw": policy.Read | policy.Write | policy.Execute, "deny": 0,
	} {
		set.Func(name, "", func(path string) error {
			f.rules = append(f.rules, func(p *policy.Policy, home string) error {
				return p.Allow(path, rights, "--"+name, home)
			})
			return nil
		})
	}
	set.Func("protect", "", func(name string) error {
		f.rules = append(f.rules, func(p *policy.Policy, _ string) error {
			return p.Protect(name)
		})
		return nil
	})
	set.Func("socket", "", func(path string) error {
		f.rules = append(f.rules, func(p *policy.Policy, home string) error {
			return p.AllowSocket(path, home)
		})
		return nil
	})
	set.StringVar(&f.network, "net", string(policy.NetworkWeb), "")
	set.Func("env", "", func(v string) error { f.env = append(f.env, v); return nil })
	set.StringVar(&f.user, "user", "", "")
	set.StringVar(&f.hardlinks, "hardlinks", string(policy.HardlinksReadonly), "")
	set.StringVar(&f.outside, "outside", string(policy.OutsideHide), "")
	set.StringVar(&f.denials, "denials", "", "")
	set.StringVar(&f.log, "log", "", "")
	set.StringVar(&f.layers, "layers", "", "")
	set.BoolVar(&f.verbose, "v", false, "")
	set.BoolVar(&f.version, "version", false, "")
	mutationFlags(set, &f)
	if err := set.Parse(args); err != nil {
		return f, nil, err
	}
	return f, set.Args(), nil
}

// runJail is the main verb.
func runJail(std stdio, args []string) int {
	f, rest, err := parseRun(args)
	if errors.Is(err, flag.ErrHelp) {
		return help(std.out)
	}
	if err != nil {
		return std.errorf("%v (agent-lock --help lists the flags)", err)
	}
	if f.version {
		return printVersion(std)
	}
	if len(rest) == 0 || slices.Contains(args[:len(args)-len(rest)], "--") {
		return std.errorf("name the project directory: sudo agent-lock DIR [-- COMMAND...]")
	}
	dir, command := rest[0], rest[1:]
	if len(command) > 0 {
		if strings.HasPrefix(command[0], "-") && command[0] != "--" {
			return std.errorf("flags go before the directory: agent-lock %s ... %s",
				command[0], dir)
		}
		if command[0] != "--" {
			return std.errorf("put -- between %s and the command: agent-lock %s -- %s",
				dir, dir, command[0])
		}
		if command = command[1:]; len(command) == 0 {
			return std.errorf("name a command after --, or leave -- out for a shell")
		}
	}
	return startJail(std, f, dir, command)
}

func startJail(std stdio, f runFlags, dir string, command []string) int {
	caller, err := jail.InvokingUser(os.Getenv)
	if err != nil {
		return std.errorf("%v", err)
	}
	user, p, err := f.userAndPolicy(dir, caller)
	if err != nil {
		return std.errorf("%v", err)
	}
	out, err := newDenialPrinter(std.err, f, p, caller)
	if err != nil {
		return std.errorf("%v", err)
	}
	defer out.close()
	if user.UID == 0 && f.user == "" {
		fmt.Fprintln(std.err, "agent-lock: started by root itself, so the command runs as root, "+
			"without capabilities; use sudo from your own user, or say --user")
	}
	layers, err := jail.ParseLayers(f.layers)
	if err != nil {
		return std.errorf("--layers %s: %v", f.layers, err)
	}
	cfg := jail.Config{
		Policy: p, User: user, Command: command,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Denied: out.denied, Lost: out.lost, Attach: f.attach,
		Layers: layers, Weaker: std.weaker, Drop: f.drop,
	}
	if f.verbose {
		cfg.Held = func(layers string) { fmt.Fprintln(std.err, "agent-lock:", layers) }
	}
	status, err := jail.Run(cfg)
	if err != nil {
		return std.errorf("%v", err)
	}
	return status
}

// userAndPolicy returns whom the command runs as and what it may do. The caller's
// home directory is kept from the jail, whoever it is that runs in it.
func (f runFlags) userAndPolicy(dir string, caller jail.User) (jail.User, *policy.Policy, error) {
	p, err := f.policy(dir, caller.Home)
	if err != nil || f.user == "" {
		return caller, p, err
	}
	user, err := jail.NamedUser(f.user)
	if err != nil {
		return user, nil, err
	}
	if p, err = f.policy(dir, user.Home); err != nil {
		return user, nil, err
	}
	if user.UID == 0 {
		p.Env = append(p.Env, callerEnv()...)
	}
	return user, p, nil
}

// callerEnv is what sudo tells root about the caller: git, for one, takes the
// caller's project for root's own by it.
func callerEnv() []string {
	var env []string
	for _, name := range []string{"SUDO_UID", "SUDO_GID", "SUDO_USER"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// weaker says what a jail without the BPF layer lacks.
func (s stdio) weaker(losses []string) {
	fmt.Fprintln(s.err, "agent-lock: without the bpf layer this jail is weaker:")
	for _, line := range losses {
		fmt.Fprintln(s.err, "  -", line)
	}
}

func (f runFlags) policy(dir, home string) (*policy.Policy, error) {
	project, err := policy.CheckProject(dir, home)
	if err != nil {
		return nil, err
	}
	p := policy.Default(project, home)
	for _, rule := range f.rules {
		if err := rule(p, home); err != nil {
			return nil, err
		}
	}
	p.Env = f.env
	if p.Network, err = policy.ParseNetwork(f.network); err != nil {
		return nil, err
	}
	p.Hardlinks = policy.Hardlinks(f.hardlinks)
	if !slices.Contains([]policy.Hardlinks{
		policy.HardlinksAllow, policy.HardlinksReadonly, policy.HardlinksDeny}, p.Hardlinks) {
		return nil, fmt.Errorf("--hardlinks %s: it is allow, readonly or deny", f.hardlinks)
	}
	p.Outside = policy.Outside(f.outside)
	if p.Outside != policy.OutsideHide && p.Outside != policy.OutsideDeny {
		return nil, fmt.Errorf("--outside %s: it is hide or deny", f.outside)
	}
	return p, nil
}
