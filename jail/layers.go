package jail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// Layers are the means by which the kernel is told to hold a jail.
type Layers struct {
	BPF, Landlock, Seccomp bool
	// View is a root directory of the jail's own that holds what rules show alone.
	View bool
	// Named says that the user listed them. A layer that nobody named is left out
	// where the kernel lacks it; one that was named is not.
	Named bool
}

// The sets that have a name. Landlock is not in the default: beside the programs it
// refuses nothing that they let pass, and an open costs a third more with it. Nor is the
// view: what is missing cannot be explained, and no file that a rule names can be replaced.
var (
	DefaultLayers = Layers{BPF: true, Seccomp: true}
	AllLayers     = Layers{BPF: true, Landlock: true, Seccomp: true, View: true}
)

// ParseLayers reads a list such as "landlock,seccomp"; "all" is AllLayers, "" is
// DefaultLayers.
func ParseLayers(list string) (Layers, error) {
	switch list {
	case "":
		return DefaultLayers, nil
	case "all":
		return AllLayers, nil
	}
	l := Layers{Named: true}
	for name := range strings.SplitSeq(list, ",") {
		switch name {
		case "bpf":
			l.BPF = true
		case "landlock":
			l.Landlock = true
		case "seccomp":
			l.Seccomp = true
		case "view":
			l.View = true
		default:
			return l, fmt.Errorf("layer %q: it is bpf, landlock, seccomp or view, or all of them "+
				"(all)", name)
		}
	}
	if !l.BPF && !l.Landlock && !l.View {
		return l, errors.New("seccomp alone keeps no file from the jail; add bpf, landlock or view")
	}
	return l, nil
}

// String lists the layers as ParseLayers reads them.
func (l Layers) String() string {
	var names []string
	for _, layer := range []struct {
		has  bool
		name string
	}{{l.BPF, "bpf"}, {l.Landlock, "landlock"}, {l.Seccomp, "seccomp"}, {l.View, "view"}} {
		if layer.has {
			names = append(names, layer.name)
		}
	}
	return strings.Join(names, ",")
}

// kernelLayers is what this kernel has of each layer.
type kernelLayers struct {
	lsms     []string // in the order in which they are asked
	landlock int      // the ABI; 0: none
	seccomp  bool
}

func askKernel() (kernelLayers, error) {
	lsms, err := activeLSMs()
	return kernelLayers{lsms: lsms, landlock: LandlockABI(), seccomp: hasSeccomp()}, err
}

// settle leaves out what the kernel lacks and nobody asked for by name.
func (l Layers) settle(k kernelLayers) (Layers, error) {
	if l.BPF {
		cmdline, _ := os.ReadFile("/proc/cmdline") // only for the remedy
		if err := checkLSMs(k.lsms, string(cmdline)); err != nil {
			return l, fmt.Errorf("%w%s", err, k.hint())
		}
	}
	for _, layer := range []struct {
		wanted *bool
		has    bool
		lacks  string
	}{
		{&l.Landlock, k.landlock > 0, "has no Landlock (CONFIG_SECURITY_LANDLOCK, and landlock " +
			"in its lsm= list)"},
		{&l.Seccomp, k.seccomp, "has no seccomp filters (CONFIG_SECCOMP_FILTER)"},
	} {
		if *layer.wanted && !layer.has {
			if l.Named {
				return l, fmt.Errorf("start a jail with --layers %s: the kernel %s; leave that "+
					"layer out", l, layer.lacks)
			}
			*layer.wanted = false
		}
	}
	return l, nil
}

// hint says what can be had without the BPF LSM.
func (k kernelLayers) hint() string {
	layers := "landlock"
	if k.landlock == 0 {
		layers = "view"
	}
	if k.seccomp {
		layers += ",seccomp"
	}
	return "; --layers " + layers + " runs a weaker jail without it"
}

// landlockFirst reports whether the kernel asks Landlock before the BPF LSM.
func (k kernelLayers) landlockFirst() bool {
	first := slices.Index(k.lsms, "landlock")
	return first >= 0 && first < slices.Index(k.lsms, "bpf")
}

// describe says how far the layers go on this kernel, in one line.
func (l Layers) describe(k kernelLayers) string {
	var parts []string
	if l.BPF {
		parts = append(parts, "bpf")
	}
	if l.Landlock {
		parts = append(parts, fmt.Sprintf("landlock (ABI %d)", k.landlock))
	}
	if l.Seccomp {
		parts = append(parts, "seccomp")
	}
	if l.View {
		parts = append(parts, "view")
	}
	return "layers: " + strings.Join(parts, ", ")
}

// A Loss is something that holds only with the BPF layer.
type Loss struct {
	// What is lost, as the start-up says it.
	What string
	// ABI is the first of Landlock that closes it; 0: none does.
	ABI int
	// Seccomp says that the filter closes it, View that the view does.
	Seccomp, View bool
}

// Losses returns what a jail without the BPF layer lacks. docs/layers.md lists it.
func Losses() []Loss {
	return []Loss{
		{What: "sizes, times, link targets and attributes outside can be read",
			View: true},
		{What: "directories outside can be watched (inotify)",
			View: true},
		{What: "a descriptor that the jail is passed opens what it was opened for"},
		{What: "a directory that the jail is passed leads to all others", ABI: 1},
		{What: "devices and pipes that a rule shows can be written to", ABI: 1},
		{What: "a file in the project with another name outside can be changed"},
		{What: "a rule on a file ends when that file is replaced outside"},
		{What: "names that run later outside (.git/hooks, .vscode) and .env are not kept"},
		{What: "what is outside looks refused (EACCES), not missing",
			View: true},
		{What: "no denials are reported"},
		{What: "a file that is hidden or protected below a directory that is not shows again " +
			"when it is replaced outside, or what it lies in is renamed in the jail"},
		{What: "TCP ports are not restricted", ABI: 4},
		{What: "UDP is not restricted, nor are addresses: cloud metadata can be reached"},
		{What: "the jail's own servers cannot be reached from within, but under --net host"},
		{What: "root in the jail can leave files with set-id bits in the project"},
		{What: "setpriority(2) reaches the process group that the jail was started in"},
		{What: "kill(0) reaches the process group that the jail was started in", ABI: 6},
		{What: "abstract Unix sockets outside can be connected to", ABI: 6},
		{What: "Unix sockets outside can be connected to by path", ABI: 9, View: true},
		{What: "Unix sockets in what rules show can be connected to by path", ABI: 9},
		{What: "user namespaces can be made, and what needs one", Seccomp: true},
		{What: "the user's keyrings can be read", Seccomp: true},
		{What: "text can be typed into the terminal, up to Linux 6.1", Seccomp: true},
	}
}

// losses are those of these layers on a kernel.
func (l Layers) losses(k kernelLayers) []string {
	var lines []string
	for _, loss := range Losses() {
		closed := loss.ABI > 0 && l.Landlock && k.landlock >= loss.ABI ||
			loss.Seccomp && l.Seccomp || loss.View && l.View
		if !closed {
			lines = append(lines, loss.What)
		}
	}
	return lines
}

// refusesWithout names what the user asked for and neither Landlock nor a mount can
// keep: it would be left out silently.
func refusesWithout(p *policy.Policy) error {
	if p.Hardlinks == policy.HardlinksDeny {
		return errors.New("--hardlinks deny cannot be kept without the bpf layer")
	}
	for _, rule := range p.Rules {
		if rule.Prefix {
			return fmt.Errorf("%s '%s*' cannot be kept without the bpf layer: it would open the "+
				"whole directory", rule.Origin, rule.Path)
		}
	}
	return nil
}

// hasSeccomp asks whether a filter may answer with an error. When the kernel does not say
// no, it is taken to have it: what then fails is the start.
func hasSeccomp() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, 0, &action)
	return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.EOPNOTSUPP)
}
