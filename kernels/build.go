package kernels

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

//go:embed config/*.config
var configs embed.FS

// Building says how a kernel is built.
type Building struct {
	// Config is the configuration, on top of allnoconfig: a file, or the name of one
	// of kernels/config without its ending.
	Config string
	// Source is the kernel's source tree. Nothing is written there.
	Source string
	// Tree is the folder to build in, kept to build faster the next time. Empty: one
	// in the cache, removed when the kernel is done.
	Tree string
	// Jobs is the number of commands at a time.
	Jobs int
	// Output gets what the compiler and the kernel's scripts say.
	Output io.Writer
}

// Build builds a kernel into the cache, and checks that each option of the
// configuration took effect: kconfig drops those whose dependencies are off
// without a word. "built:NAME" then names the kernel, with the configuration's name.
func Build(ctx context.Context, opts Options, b Building) (Kernel, error) {
	if runtime.GOARCH != "amd64" {
		return Kernel{}, fmt.Errorf("build kernel: only x86-64 guests are known, this is %s",
			runtime.GOARCH)
	}
	name, text, err := readFragment(b.Config)
	if err != nil {
		return Kernel{}, err
	}
	wanted, err := parseFragment(text)
	if err != nil {
		return Kernel{}, fmt.Errorf("configuration %s: %w", b.Config, err)
	}
	if err := checkTools(wanted); err != nil {
		return Kernel{}, err
	}
	if b.Source, err = sourceTree(b.Source); err != nil {
		return Kernel{}, err
	}
	c, err := openCache(opts.Cache)
	if err != nil {
		return Kernel{}, err
	}
	if b.Tree == "" {
		if b.Tree, err = os.MkdirTemp(c.dir, ".new-build-"); err != nil {
			return Kernel{}, fmt.Errorf("make build tree: %w", err)
		}
		defer os.RemoveAll(b.Tree)
	}
	if b.Tree, err = filepath.Abs(b.Tree); err != nil {
		return Kernel{}, err
	}
	if err := b.compile(ctx, opts, text, wanted); err != nil {
		return Kernel{}, fmt.Errorf("build kernel %s of %s: %w", name, b.Source, err)
	}
	return c.addBuilt(ctx, name, b)
}

// compile runs the kernel's make up to the image, with a look at the options
// before what takes long and another one after it.
func (b Building) compile(ctx context.Context, opts Options, text string,
	wanted []option) error {
	if err := os.MkdirAll(b.Tree, 0o755); err != nil {
		return err
	}
	fragment := filepath.Join(b.Tree, "agent-lock.config")
	if err := os.WriteFile(fragment, []byte(text), 0o644); err != nil {
		return err
	}
	if err := b.make(ctx, "allnoconfig", "KCONFIG_ALLCONFIG="+fragment); err != nil {
		return err
	}
	config := filepath.Join(b.Tree, ".config")
	if err := checkOptions(config, wanted); err != nil {
		return err
	}
	opts.logf("kernels: building in %s, which takes tens of minutes", b.Tree)
	if err := b.make(ctx, "bzImage"); err != nil {
		return err
	}
	return checkOptions(config, wanted)
}

// make runs make in the build tree; the source tree stays as it is.
func (b Building) make(ctx context.Context, target string, variables ...string) error {
	args := []string{"-s", "-C", b.Source, "O=" + b.Tree, "ARCH=x86_64",
		fmt.Sprintf("-j%d", max(b.Jobs, 1))}
	cmd := exec.CommandContext(ctx, "make", append(append(args, variables...), target)...)
	cmd.Stdout, cmd.Stderr = b.Output, b.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("make %s: %w", target, ctx.Err())
	case err != nil:
		return fmt.Errorf("make %s: %w (what it said is above)", target, err)
	}
	return nil
}

// addBuilt makes the build's image a cache entry, named after its content.
func (c cache) addBuilt(ctx context.Context, name string, b Building) (Kernel, error) {
	image := filepath.Join(b.Tree, "arch/x86/boot/bzImage")
	img, err := inspect(image)
	if err != nil {
		return Kernel{}, err
	}
	entryName := schemeBuilt + "-" + img.sha256
	err = c.create(ctx, entryName, func(dir string) (entry, error) {
		e := entry{Source: schemeBuilt + " " + name + " from " + b.Source, Origin: schemeBuilt}
		for from, to := range map[string]string{image: "vmlinuz", b.Tree + "/.config": "config"} {
			f, err := os.Open(from)
			if err != nil {
				return e, err
			}
			err = writeFile(filepath.Join(dir, to), f)
			f.Close()
			if err != nil {
				return e, err
			}
		}
		return e, e.complete(ctx, dir)
	})
	if err != nil {
		return Kernel{}, fmt.Errorf("keep kernel %s: %w", name, err)
	}
	r := ref{spec: schemeBuilt + ":" + name, scheme: schemeBuilt, arg: name}
	if err := c.setSeries(r.spec, entryName); err != nil {
		return Kernel{}, fmt.Errorf("remember kernel %s: %w", r.spec, err)
	}
	return c.named(r, entryName)
}

// resolveBuilt uses what Build last built of a configuration.
func resolveBuilt(c cache, r ref) (Kernel, error) {
	if name, ok := c.series(r.spec, math.MaxInt64); ok {
		if k, err := c.named(r, name); err == nil {
			return k, nil
		}
	}
	return Kernel{}, missing(r, fmt.Errorf("built: there is none in the cache %s; "+
		"agent-lock kernels build --config %s SOURCE makes it", c.dir, r.arg))
}

// buildNameRE is what the name of a configuration may be: "built:NAME" is said on
// command lines, in lists, and is a file's name in the cache.
var buildNameRE = lazily(`^[0-9A-Za-z][0-9A-Za-z._-]*$`)

// readFragment reads a configuration: one of ours by its name, else a file.
func readFragment(config string) (name, text string, err error) {
	name = strings.TrimSuffix(filepath.Base(config), ".config")
	if !buildNameRE().MatchString(name) {
		return "", "", fmt.Errorf("configuration %q: its name may have letters, digits, dot, "+
			"dash and underscore", config)
	}
	if name == config {
		if data, err := configs.ReadFile("config/" + name + ".config"); err == nil {
			return name, string(data), nil
		}
	}
	data, err := os.ReadFile(config)
	if errors.Is(err, os.ErrNotExist) && name == config {
		return "", "", fmt.Errorf("configuration %s: neither a file nor one of ours (%s)", config,
			strings.Join(configNames(), ", "))
	}
	if err != nil {
		return "", "", fmt.Errorf("read configuration: %w", err)
	}
	return name, string(data), nil
}

// configNames are the configurations that are built in.
func configNames() []string {
	files, _ := configs.ReadDir("config")
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".config"))
	}
	return names
}

// sourceTree wants a kernel's source at dir, in which nothing was built: make
// refuses to build elsewhere what is half built in place.
func sourceTree(dir string) (string, error) {
	for _, file := range []string{"Makefile", "Kconfig", "scripts/kconfig/Makefile"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return "", fmt.Errorf("source %s is no kernel's source tree: %w (unpack one, such as "+
				"/usr/src/linux-source-*.tar.xz of Debian's linux-source)", dir, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".config")); err == nil {
		return "", fmt.Errorf("source %s: a kernel was configured in place; "+
			"clean it with make mrproper, or unpack another", dir)
	}
	return filepath.Abs(dir)
}
