package jail

import (
	"maps"
	"slices"

	"github.com/agent-lock/agent-lock/bpf"
)

// The forms of rules that Config.Drop can leave out, to test that they matter.
const (
	DropProtected = "rule_protected" // protected names, but for git's own
	DropGit       = "rule_git"       // git's own
	DropDenied    = "rule_denied"    // denied names
	DropLinks     = "rule_hardlinks" // the policy on files with several names
	DropNames     = "rule_names"     // names in one directory
	DropFixed     = "rule_fixed"     // directories that keep their names
	DropLabels    = "rule_files"     // labels of single files
)

// leaveOut takes forms of rules out of what a jail is armed with.
func leaveOut(drop []string, labels map[uint64]bpf.Rights, names []bpf.Name,
	opts *bpf.SlotOptions) []bpf.Name {
	kinds := map[string]bpf.NameKind{DropProtected: bpf.NameProtected, DropGit: bpf.NameRepository,
		DropDenied: bpf.NameDenied, DropNames: bpf.NameRights}
	var bits bpf.Rights
	for form, bit := range map[string]bpf.Rights{DropNames: bpf.Names, DropFixed: bpf.Fixed,
		DropLabels: bpf.Files} {
		if slices.Contains(drop, form) {
			bits |= bit
		}
	}
	for _, at := range slices.Collect(maps.Keys(labels)) {
		labels[at] &^= bits
	}
	if slices.Contains(drop, DropLinks) {
		opts.Links = bpf.LinksAllow
	}
	return slices.DeleteFunc(names, func(n bpf.Name) bool {
		for form, kind := range kinds {
			everywhere := n.Directory == bpf.Anywhere
			if slices.Contains(drop, form) && n.Kind == kind && everywhere == (form != DropNames) {
				return true
			}
		}
		return false
	})
}
