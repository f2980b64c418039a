package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// readObject returns the programs and maps, made to fit the kernel's types where
// the programs' own relocations cannot do that.
func readObject() (*ebpf.CollectionSpec, *btf.Spec, error) {
	spec, err := loadJail()
	if err != nil {
		return nil, nil, fmt.Errorf("read BPF object: %w", err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, nil, fmt.Errorf("read the kernel's types: %w "+
			"(it needs CONFIG_DEBUG_INFO_BTF)", err)
	}
	offset, err := shortNameOffset(kernel)
	if err != nil {
		return nil, nil, err
	}
	if err := spec.Variables["short_name_offset"].Set(offset); err != nil {
		return nil, nil, fmt.Errorf("set the offset of short names: %w", err)
	}
	return spec, kernel, nil
}

// shortNameOffset finds where a dentry holds short names: d_iname, which 6.14
// replaced by d_shortname (include/linux/dcache.h).
func shortNameOffset(kernel *btf.Spec) (uint32, error) {
	var dentry *btf.Struct
	if err := kernel.TypeByName("dentry", &dentry); err != nil {
		return 0, fmt.Errorf("find short names in the kernel's types: %w", err)
	}
	for _, m := range dentry.Members {
		if m.Name == "d_iname" || m.Name == "d_shortname" {
			return m.Offset.Bytes(), nil
		}
	}
	return 0, errors.New("find short names in the kernel's types: struct dentry has neither " +
		"d_iname nor d_shortname")
}
