package jail

import (
	"slices"
	"testing"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/google/go-cmp/cmp"
)

func TestLeaveOut(t *testing.T) {
	all := []bpf.Name{
		{Name: ".vscode", Kind: bpf.NameProtected}, {Name: ".env", Kind: bpf.NameDenied},
		{Name: ".env.example", Kind: bpf.NameRights}, {Name: ".git", Kind: bpf.NameRepository},
		{Name: "key", Directory: 0x100, Kind: bpf.NameRights},
	}
	for _, tt := range []struct {
		drop   []string
		names  []string
		rights bpf.Rights
	}{
		{nil, []string{".vscode", ".env", ".env.example", ".git", "key"},
			bpf.Read | bpf.Names | bpf.Fixed | bpf.Files},
		{[]string{DropProtected, DropFixed}, []string{".env", ".env.example", ".git", "key"},
			bpf.Read | bpf.Names | bpf.Files},
		{[]string{DropDenied, DropGit}, []string{".vscode", ".env.example", "key"},
			bpf.Read | bpf.Names | bpf.Fixed | bpf.Files},
		{[]string{DropNames, DropLabels}, []string{".vscode", ".env", ".env.example", ".git"},
			bpf.Read | bpf.Fixed},
	} {
		labels := map[uint64]bpf.Rights{1: bpf.Read | bpf.Names | bpf.Fixed | bpf.Files}
		var got []string
		names := leaveOut(tt.drop, labels, slices.Clone(all), &bpf.SlotOptions{})
		for _, n := range names {
			got = append(got, n.Name)
		}
		if diff := cmp.Diff(tt.names, got); diff != "" || labels[1] != tt.rights {
			t.Errorf("%v: rights %v, want %v; names (-want +got):\n%s", tt.drop, labels[1],
				tt.rights, diff)
		}
	}
}
