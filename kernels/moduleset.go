package kernels

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// builtinList is the file in lib/modules/RELEASE that lists what is no module.
const builtinList = "modules.builtin"

// maxModule bounds one module; the largest of distributions are graphics drivers.
const maxModule = 256 << 20

// A ModuleSet is the modules of one kernel, on disk.
type ModuleSet struct {
	files   map[string]string // by name
	builtin map[string]bool
}

// A Module is one that was asked for, or that another one needs.
type Module struct {
	Name string
	Data []byte // not compressed any more
}

// moduleName is the name of the module in a file; empty: the file has none. In
// names - and _ are the same.
func moduleName(file string) string {
	base := path.Base(file)
	for _, ending := range []string{".xz", ".zst", ".gz"} {
		base = strings.TrimSuffix(base, ending)
	}
	name, ok := strings.CutSuffix(base, ".ko")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(name, "-", "_")
}

func readModuleSet(dir string) (*ModuleSet, error) {
	s := &ModuleSet{files: map[string]string{}, builtin: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if name := moduleName(path); name != "" {
				s.files[name] = path
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read modules: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, builtinList))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read modules: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if name := moduleName(strings.TrimSpace(line)); name != "" {
			s.builtin[name] = true
		}
	}
	return s, nil
}

// Order returns the named modules and all that they need, each after what it
// needs, and those of the names that the kernel neither has as a module nor built in.
func (s *ModuleSet) Order(ctx context.Context, names []string) (order []Module, lacks []string,
	err error) {
	seen := map[string]bool{}
	var add func(name string, soft bool) error
	add = func(name string, soft bool) error {
		name = strings.ReplaceAll(name, "-", "_")
		if seen[name] || s.builtin[name] {
			return nil
		}
		seen[name] = true
		file, ok := s.files[name]
		if !ok {
			if !soft { // a soft need may name an alias of something else
				lacks = append(lacks, name)
			}
			return nil
		}
		data, err := readModule(ctx, file)
		if err != nil {
			return fmt.Errorf("read module %s: %w", name, err)
		}
		needs, soft2, err := moduleNeeds(data)
		if err != nil {
			return fmt.Errorf("read module %s: %w", name, err)
		}
		for _, n := range soft2 {
			// An algorithm's name stands for whatever module provides it.
			for _, alias := range []string{n, n + "_generic", "lib" + n} {
				if err := add(alias, true); err != nil {
					return err
				}
			}
		}
		for _, n := range needs {
			if err := add(n, false); err != nil {
				return err
			}
		}
		order = append(order, Module{name, data})
		return nil
	}
	for _, name := range names {
		if err := add(name, false); err != nil {
			return nil, nil, err
		}
	}
	return order, lacks, nil
}

// readModule reads a module's file and unpacks it.
func readModule(ctx context.Context, file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ending := filepath.Ext(file)
	if ending == ".ko" {
		ending = ""
	}
	r, err := decompress(ctx, ending, f)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(&cappedReader{r: r, left: maxModule})
	return data, errors.Join(err, r.Close())
}

// moduleNeeds reads what a module says it needs: depmod's file is made when a
// package is installed, and is in none.
func moduleNeeds(data []byte) (needs, soft []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, nil, errors.New("it has no .modinfo")
	}
	text, err := section.Data()
	if err != nil {
		return nil, nil, err
	}
	for _, line := range strings.Split(string(text), "\x00") {
		key, value, _ := strings.Cut(line, "=")
		switch key {
		case "depends":
			for _, n := range strings.Split(value, ",") {
				if n != "" {
					needs = append(needs, n)
				}
			}
		case "softdep":
			before, _, _ := strings.Cut(value, "post:")
			soft = append(soft, strings.Fields(strings.TrimPrefix(before, "pre:"))...)
		}
	}
	return needs, soft, nil
}
