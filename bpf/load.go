package bpf

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/hashicorp/go-multierror"
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
// kernel would use it, and then attaches the whole set for a moment. The error
// is that of the set.
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
			case err != nil && hook.Required:
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
	return attachOnce(spec, kernel, cache)
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

func attachOnce(spec *ebpf.CollectionSpec, kernel *btf.Spec, cache *btf.Cache) (err error) {
	all := spec.Copy()
	if _, err := fit(all, kernel, nil); err != nil {
		return err
	}
	coll, err := ebpf.NewCollectionWithOptions(all, ebpf.CollectionOptions{Cache: cache})
	if err != nil {
		return fmt.Errorf("load BPF programs: %w", err)
	}
	defer coll.Close()
	var links []link.Link
	defer func() { detach(links) }()
	var failed *multierror.Error
	for name, p := range coll.Programs {
		l, err := attachProgram(p, name)
		if err != nil {
			failed = multierror.Append(failed, err)
			continue
		}
		links = append(links, l)
	}
	return failed.ErrorOrNil()
}

// detach closes links side by side: each waits for RCU grace periods, and
// those that wait together wait once.
func detach(links []link.Link) {
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(func() { l.Close() })
	}
	wg.Wait()
}
