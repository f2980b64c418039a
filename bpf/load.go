package bpf

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Loaded is the outcome of loading one program on its own.
type Loaded struct {
	// Name is that of the hook's first program, on all kernels; Program is the one
	// that this kernel's prototype asks for.
	Name, Program string
	// Hook is the LSM hook that the program is for; "" for a helper.
	Hook string
	Cost Cost
	// Unsupported says that the kernel lacks the hook, and what that means.
	Unsupported string
	Err         error
}

// Cost is what the verifier spent on a program.
type Cost struct {
	Insns  uint32 // instructions that it processed, each as often as it came there
	States uint32 // states that it had to remember; 1 or more for each branch
}

// LoadEach loads a program for each hook that the kernel has on its own, whether or
// not a jail would use it here, and reports how that went. Its error means that
// nothing could be tried.
func LoadEach(report func(Loaded)) error {
	spec, kernel, err := readObject()
	if err != nil {
		return err
	}
	shared, err := loadMaps(spec)
	if err != nil {
		return err
	}
	defer shared.Close()
	opts := ebpf.CollectionOptions{Cache: btf.NewCache(), MapReplacements: shared.Maps}
	for _, hook := range Hooks() {
		loaded := Loaded{Name: hook.Programs[0].Name, Hook: hook.Name}
		program, err := choose(hook, kernel)
		switch {
		case err == nil:
			loaded.Program = program
			loaded.Cost, loaded.Err = loadAlone(spec, program, opts)
		case hook.When == WithPathHooks && !hasPathHooks(kernel):
			loaded.Unsupported = err.Error() + "; the inode_* hooks do its work"
		case hook.Required:
			loaded.Err = err
		default:
			loaded.Unsupported = err.Error() + "; lost: " + hook.Without
		}
		report(loaded)
		if twin := addTwin(spec, kernel, hook, program); twin != "" {
			loaded := Loaded{Name: "first_" + hook.Programs[0].Name, Program: twin, Hook: hook.Name}
			loaded.Cost, loaded.Err = loadAlone(spec, twin, opts)
			report(loaded)
		}
	}
	for _, name := range helpers {
		loaded := Loaded{Name: name, Program: name}
		if !canTrace(name, kernel) {
			loaded.Unsupported = "kernel has no " + traced[name] + "; lost: its own UDP sockets " +
				"cannot be reached from within a jail"
			report(loaded)
			continue
		}
		loaded.Cost, loaded.Err = loadAlone(spec, name, opts)
		report(loaded)
	}
	return nil
}

// Attach attaches the whole set and leaves it there, for the next jail with the same
// options to find.
func Attach(opts SetOptions) error {
	unlock, err := lockSets()
	if err != nil {
		return err
	}
	defer unlock()
	set, err := openSet(opts)
	if err != nil {
		return err
	}
	set.close()
	return nil
}

// loadMaps makes the maps of a collection, for its programs to share.
func loadMaps(spec *ebpf.CollectionSpec) (*ebpf.Collection, error) {
	alone := spec.Copy()
	clear(alone.Programs)
	return ebpf.NewCollection(alone)
}

// loadAlone loads one program of a collection. Its error has the verifier's log.
func loadAlone(spec *ebpf.CollectionSpec, name string, opts ebpf.CollectionOptions) (Cost, error) {
	alone := spec.Copy()
	maps.DeleteFunc(alone.Programs, func(other string, _ *ebpf.ProgramSpec) bool {
		return other != name
	})
	opts.Programs.LogLevel = ebpf.LogLevelStats
	coll, err := ebpf.NewCollectionWithOptions(alone, opts)
	var refused *ebpf.VerifierError
	// Once more, to see what it checked last; of a million instructions that would be a log
	// of hundreds of megabytes, and the reason is there already.
	if errors.As(err, &refused) && !errors.Is(err, unix.E2BIG) {
		opts.Programs.LogLevel = 0
		coll, err = ebpf.NewCollectionWithOptions(alone, opts)
	}
	if err != nil {
		return Cost{}, err
	}
	defer coll.Close()
	return costIn(coll.Programs[name].VerifierLog)
}

// processed is the verifier's own summary (kernel/bpf/verifier.c, print_verification_stats;
// since 5.2).
var processed = regexp.MustCompile(`processed (\d+) insns .*total_states (\d+)`)

func costIn(log string) (Cost, error) {
	m := processed.FindStringSubmatch(log)
	if m == nil {
		return Cost{}, fmt.Errorf("read the verifier's statistics: they are not in %.200q", log)
	}
	var c Cost
	for i, to := range []*uint32{&c.Insns, &c.States} {
		n, err := strconv.ParseUint(m[i+1], 10, 32)
		if err != nil {
			return Cost{}, fmt.Errorf("read the verifier's statistics: %w", err)
		}
		*to = uint32(n)
	}
	return c, nil
}
