package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/vmtest"
)

// equipment is what a guest has besides our binary and single files.
type equipment struct {
	packages, modules, trees []string
	shares                   []vmtest.Share
}

func (e *equipment) flags(fs *flag.FlagSet) {
	list := func(to *[]string) func(string) error {
		return func(s string) error {
			for _, name := range strings.Split(s, ",") {
				if name = strings.TrimSpace(name); name == "" {
					return fmt.Errorf("%q has an empty entry", s)
				}
				*to = append(*to, name)
			}
			return nil
		}
	}
	fs.Func("package", "", list(&e.packages))
	fs.Func("module", "", list(&e.modules))
	fs.Func("tree", "", func(s string) error {
		if info, err := os.Stat(s); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is no directory", s)
		}
		e.trees = append(e.trees, s)
		return nil
	})
	fs.Func("share", "", func(s string) error {
		host, guest, ok := strings.Cut(s, ":")
		info, err := os.Stat(host)
		if !ok || guest == "" || err != nil || !info.IsDir() {
			return fmt.Errorf("%q is not DIR:GUEST with a directory of this machine's", s)
		}
		host, err = filepath.Abs(host)
		e.shares = append(e.shares, vmtest.Share{Host: host, Guest: guest})
		return err
	})
}

// add gets the packages and enters everything into the run.
func (e *equipment) add(ctx context.Context, cfg *vmtest.Config) error {
	cfg.Modules, cfg.Shares = e.modules, e.shares
	if len(e.packages) > 0 {
		tree, err := kernels.Packages(ctx, e.packages, kernels.Options{Logf: cfg.Logf})
		if err != nil {
			return err
		}
		cfg.Trees = append(cfg.Trees, vmtest.Tree{Host: tree})
	}
	for _, dir := range e.trees {
		cfg.Trees = append(cfg.Trees, vmtest.Tree{Host: dir})
	}
	return nil
}

// suits says why a kernel's guest could not run what is put into it.
func (e equipment) suits(k kernels.Kernel) error {
	if k.Arch != runtime.GOARCH && len(e.packages) > 0 {
		return fmt.Errorf("--package has programs for %s, and the kernel is for %s; put the "+
			"programs into a folder and use --tree", runtime.GOARCH, k.Arch)
	}
	return nil
}

// foreignBinaries are where the binaries for guests of other architectures are expected:
// beside this program, as make cross leaves them.
func foreignBinaries() map[string]string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	binaries := map[string]string{}
	for _, arch := range []string{kernels.AMD64, kernels.ARM64} {
		if arch != runtime.GOARCH {
			binaries[arch] = filepath.Join(filepath.Dir(self), "agent-lock-"+arch)
		}
	}
	return binaries
}
