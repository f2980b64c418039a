package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Loaded is the outcome of loading one program on its own.
type Loaded struct {
	Name string
	// Hook is the LSM hook that the program is for; "" for a helper.
	Hook string
	// Insns is the number of instructions that the verifier processed.
	Insns uint32
	// Unsupported is set when the kernel lacks the hook or calls it otherwise.
	Unsupported string
	Err         error
}

// LoadEach loads every program of the object on its own, whether or not this
// kernel would use it, and reports how that went. Its error means that nothing
// could be tried.
func LoadEach(report func(Loaded)) error {
	spec, err := loadJail()
	if err != nil {
		return fmt.Errorf("read BPF object: %w", err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	cache := btf.NewCache()
	for name, hook := range programHooks() {
		loaded := Loaded{Name: name, Hook: hook.Name}
		if hook.Name != "" {
			switch chosen, err := choose(hook, kernel); {
			case err != nil && hook.Required && hook.When != WithPathHooks:
				loaded.Err = err
			case err != nil:
				loaded.Unsupported = err.Error()
			case chosen != name:
				loaded.Unsupported = "the kernel's prototype is that of " + chosen
			}
		}
		if loaded.Err == nil && loaded.Unsupported == "" {
			loaded.Insns, loaded.Err = loadAlone(spec, name, cache)
		}
		report(loaded)
	}
	return nil
}

// Attach attaches the whole set and leaves it there, for the next jail to find.
func Attach() error {
	unlock, err := lockSets()
	if err != nil {
		return err
	}
	defer unlock()
	set, err := openSet(SetOptions{})
	if err != nil {
		return err
	}
	set.close()
	return nil
}

// programHooks maps every program of the object to its hook, in table order.
func programHooks() func(yield func(string, Hook) bool) {
	return func(yield func(string, Hook) bool) {
		for _, hook := range Hooks() {
			for _, p := range hook.Programs {
				if !yield(p.Name, hook) {
					return
				}
			}
		}
		for _, name := range helpers {
			if !yield(name, Hook{}) {
				return
			}
		}
	}
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
