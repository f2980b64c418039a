package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Loaded is the outcome of loading one program on its own.
type Loaded struct {
	// Name is that of the hook's first program, on all kernels; Program is the one
	// that this kernel's prototype asks for.
	Name, Program string
	// Hook is the LSM hook that the program is for; "" for a helper.
	Hook string
	// Insns is the number of instructions that the verifier processed.
	Insns uint32
	// Unsupported says that the kernel lacks the hook, and what that means.
	Unsupported string
	Err         error
}

// LoadEach loads a program for each hook that the kernel has on its own, whether or
// not a jail would use it here, and reports how that went. Its error means that
// nothing could be tried.
func LoadEach(report func(Loaded)) error {
	spec, kernel, err := readObject()
	if err != nil {
		return err
	}
	cache := btf.NewCache()
	for _, hook := range Hooks() {
		loaded := Loaded{Name: hook.Programs[0].Name, Hook: hook.Name}
		program, err := choose(hook, kernel)
		switch {
		case err == nil:
			loaded.Program = program
			loaded.Insns, loaded.Err = loadAlone(spec, program, cache)
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
			loaded.Insns, loaded.Err = loadAlone(spec, twin, cache)
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
		loaded.Insns, loaded.Err = loadAlone(spec, name, cache)
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

func loadAlone(spec *ebpf.CollectionSpec, name string, cache *btf.Cache) (uint32, error) {
	alone := spec.Copy()
	for other := range alone.Programs {
		if other != name {
			delete(alone.Programs, other)
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(alone, ebpf.CollectionOptions{Cache: cache})
	if err != nil {
		return 0, err
	}
	defer coll.Close()
	info, err := coll.Programs[name].Info()
	if err != nil {
		return 0, fmt.Errorf("read program info: %w", err)
	}
	insns, _ := info.VerifiedInstructions()
	return insns, nil
}
