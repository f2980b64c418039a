package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// LoadFile loads each program of a compiled object, of anybody's, on its own and with the
// maps that it uses, and reports how that went. Nothing is attached. A program is
// unsupported where the kernel lacks what it attaches to, a kfunc, or a type of map or
// program. The error means that nothing could be tried.
func LoadFile(path string, report func(Loaded)) error {
	spec, err := readFile(path)
	if errors.Is(err, ebpf.ErrNotSupported) { // by the library that loads it
		report(Loaded{Name: filepath.Base(path), Program: filepath.Base(path),
			Unsupported: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	opts := ebpf.CollectionOptions{Cache: btf.NewCache()}
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		p := spec.Programs[name]
		l := Loaded{Name: name, Program: name, Hook: p.SectionName}
		switch {
		case p.Type == ebpf.UnspecifiedProgram:
			l.Err = fmt.Errorf("section %q names no type of program that is known", p.SectionName)
		case p.Type == ebpf.Extension, p.Type == ebpf.Tracing && p.AttachTo == "":
			l.Unsupported = "what it attaches to is known only when somebody attaches it"
		default:
			l.Cost, l.Err = loadAlone(trimmed(spec, name), name, opts)
		}
		if errors.Is(l.Err, ebpf.ErrNotSupported) || errors.Is(l.Err, btf.ErrNotFound) {
			l.Unsupported, l.Err = l.Err.Error(), nil
		}
		report(l)
	}
	return nil
}

// CheckFile finds out without a kernel whether LoadFile can read an object. What it would
// call unsupported is no error.
func CheckFile(path string) error {
	if _, err := readFile(path); !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return nil
}

func readFile(path string) (*ebpf.CollectionSpec, error) {
	spec, err := ebpf.LoadCollectionSpec(path)
	if err != nil {
		return nil, fmt.Errorf("%s is no BPF object that can be loaded: %w", path, err)
	}
	if spec.ByteOrder != binary.LittleEndian {
		return nil, fmt.Errorf("%s is for big-endian machines; compile it with --target=bpfel",
			path)
	}
	if len(spec.Programs) == 0 {
		return nil, fmt.Errorf("%s has no programs", path)
	}
	return spec, nil
}

// trimmed returns a copy with those maps alone that a program and its functions use: one
// that the kernel lacks must not stop the others.
func trimmed(spec *ebpf.CollectionSpec, program string) *ebpf.CollectionSpec {
	alone := spec.Copy()
	used := make(map[string]bool)
	for _, ins := range alone.Programs[program].Instructions {
		used[ins.Reference()] = true
	}
	for _, m := range alone.Maps {
		m.Pinning = ebpf.PinNone
		if m.Type == ebpf.ProgramArray {
			m.Contents = nil // other programs
		}
	}
	for name, m := range alone.Maps {
		for _, inner := range m.Contents { // of a map of maps
			if other, ok := inner.Value.(string); ok && used[name] {
				used[other] = true
			}
		}
	}
	maps.DeleteFunc(alone.Maps, func(name string, _ *ebpf.MapSpec) bool { return !used[name] })
	maps.DeleteFunc(alone.Variables, func(_ string, v *ebpf.VariableSpec) bool {
		return alone.Maps[v.SectionName] == nil
	})
	return alone
}
