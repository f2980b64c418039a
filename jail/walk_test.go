package jail

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agent-lock/agent-lock/policy"
)

// What a path led to once, it leads to for every rule: a change in between cannot
// give the label of one object to another.
func TestWalkLooksOnce(t *testing.T) {
	top := tree(t, "dir/", "other/", "dir/file", "other/file")
	r, err := resolve(&policy.Policy{}, "/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := filepath.Join(top, "dir/file")
	before, err := r.walk(path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(top, "other/file"), path); err != nil {
		t.Fatal(err)
	}
	after, err := r.walk(path, nil, nil)
	if err != nil || before.fd != after.fd {
		t.Errorf("walk = %d, %v, want %d as before", after.fd, err, before.fd)
	}
}
