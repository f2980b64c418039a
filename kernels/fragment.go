package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// option is a line of a configuration: NAME=value, or NAME and no value.
type option struct {
	name, value string
}

func (o option) String() string {
	if o.value == "" {
		return o.name + " off"
	}
	return o.name + "=" + o.value
}

// parseFragment reads the lines of a configuration as the kernel's are written.
func parseFragment(text string) ([]option, error) {
	var options []option
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		name, value, set := strings.Cut(line, "=")
		off, unset := strings.CutSuffix(strings.TrimPrefix(line, "# "), " is not set")
		switch {
		case strings.HasPrefix(line, "# CONFIG_") && unset:
			name, value = off, ""
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case !set || value == "" || !strings.HasPrefix(name, "CONFIG_"):
			return nil, fmt.Errorf("line %d: %q is not CONFIG_NAME=value, "+
				"\"# CONFIG_NAME is not set\" or a comment", i+1, line)
		case value == "n":
			value = ""
		}
		if seen[name] {
			return nil, fmt.Errorf("line %d: %s comes twice", i+1, name)
		}
		seen[name] = true
		options = append(options, option{name, value})
	}
	if len(options) == 0 {
		return nil, fmt.Errorf("it sets nothing")
	}
	return options, nil
}

// checkOptions compares a kernel's configuration with what was wanted.
func checkOptions(config string, wanted []option) error {
	data, err := os.ReadFile(config)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && line[0] != '#' {
			got[name] = value
		}
	}
	var wrong []string
	for _, o := range wanted {
		if is := (option{o.name, got[o.name]}); is != o {
			wrong = append(wrong, fmt.Sprintf("%s wanted, %s made of it", o, is))
		}
	}
	if wrong != nil {
		return fmt.Errorf("%d options had no effect: %s (an option that it depends on is off, "+
			"or one that selects it is on; make menuconfig tells with /NAME)", len(wrong),
			strings.Join(wrong, "; "))
	}
	return nil
}

// builders are the programs that a build runs, and the packages that have them.
var builders = []struct{ program, pkg, option string }{
	{"make", "make", ""},
	{"gcc", "gcc", ""},
	{"ld", "binutils", ""},
	{"flex", "flex", ""},
	{"bison", "bison", ""},
	{"bc", "bc", ""},
	{"pahole", "pahole", "CONFIG_DEBUG_INFO_BTF"},
}

// checkTools names everything that a build would miss at once. Kconfig takes
// types (BTF) for impossible without pahole, and so turns off BPF LSM programs.
func checkTools(wanted []option) error {
	var lacks, pkgs []string
	for _, b := range builders {
		needed := b.option == ""
		for _, o := range wanted {
			needed = needed || o.name == b.option && o.value == "y"
		}
		if _, err := exec.LookPath(b.program); needed && err != nil {
			lacks, pkgs = append(lacks, b.program), append(pkgs, b.pkg)
		}
	}
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("build kernel: %s not found (on Debian and Ubuntu: "+
		"apt-get install %s libelf-dev)", strings.Join(lacks, ", "), strings.Join(pkgs, " "))
}
