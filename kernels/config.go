package kernels

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ConfigValue returns the value of one option in the kernel's configuration
// ("y", "m", a number, a string without its quotes), and "" when it is not set.
// Without a configuration file it returns an error.
func (k Kernel) ConfigValue(option string) (string, error) {
	if k.Config == "" {
		return "", fmt.Errorf("kernel %s comes without its configuration", k.Name)
	}
	f, err := os.Open(k.Config)
	if err != nil {
		return "", fmt.Errorf("read kernel configuration: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), option+"="); ok {
			return strings.Trim(v, `"`), nil
		}
	}
	return "", sc.Err()
}

// needed are the options without which no jail can be built: LSM programs at all,
// their types, the hooks of sockets, and the namespace that a jail is known by.
// For CONFIG_SECURITY_PATH there are other hooks.
var needed = []string{
	"CONFIG_BPF_LSM", "CONFIG_DEBUG_INFO_BTF", "CONFIG_SECURITY_NETWORK", "CONFIG_PID_NS",
}

// Lacks returns the options that a jail needs and that the kernel was built
// without, by its own configuration. It is empty when the configuration is
// unknown: then the guest has to find out.
func (k Kernel) Lacks() []string {
	var lacks []string
	options := needed
	if k.Arch == ARM64 { // since Linux 6.4; on x86-64 functions are patched in another way
		options = append(slices.Clone(needed), "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS")
	}
	for _, option := range options {
		if v, err := k.ConfigValue(option); err == nil && v != "y" {
			lacks = append(lacks, option)
		}
	}
	return lacks
}

// What CONFIG_IKCONFIG puts around the compressed configuration in a kernel.
const (
	ikconfigStart = "IKCFG_ST"
	ikconfigEnd   = "IKCFG_ED"
)

// maxConfig is far above real configurations (300 KiB).
const maxConfig = 8 << 20

// ikconfig returns the configuration that a vmlinux carries inside; nil: none.
func ikconfig(vmlinux []byte) []byte {
	for {
		_, rest, ok := bytes.Cut(vmlinux, []byte(ikconfigStart))
		if !ok {
			return nil
		}
		vmlinux = rest
		end := bytes.Index(rest, []byte(ikconfigEnd))
		if end < 0 {
			return nil
		}
		gz, err := gzip.NewReader(bytes.NewReader(rest[:end]))
		if err != nil { // the words also occur where the kernel's own scripts name them
			continue
		}
		text, err := io.ReadAll(&cappedReader{gz, maxConfig})
		if err == nil && bytes.Contains(text, []byte("CONFIG_")) {
			return text
		}
	}
}

// keepConfig writes the configuration in a vmlinux to dir/config, unless that
// exists or there is none.
func keepConfig(vmlinux []byte, dir string) error {
	path := filepath.Join(dir, "config")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text := ikconfig(vmlinux)
	if text == nil {
		return nil
	}
	return os.WriteFile(path, text, 0o644)
}
