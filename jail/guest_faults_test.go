//go:build guest

package jail_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// What the command finds when it runs. After a fault it finds the same or does not
// run at all.
type finding struct {
	Secret  string // what opening the secret gave
	Posture posture
	Mounts  []string // its own
}

const faultStatus = 7 // of the command

// Every step of a start and an end, with the attach set present, fails or kills its
// process. AGENT_LOCK_FAULTS=all in the environment tries each one; otherwise, of
// many calls of a name, some.
func TestFaultAtEveryStep(t *testing.T) {
	testFaults(t, func(s step) bool { return true })
}

// The same where the jail attaches the programs itself and takes them away. Only the
// supervisor does more then.
func TestFaultAtEveryStepOfAttaching(t *testing.T) {
	withoutKeeping(t)
	testFaults(t, func(s step) bool {
		return s.role == "supervisor" && (strings.HasPrefix(s.name, "bpf ") ||
			slices.Contains([]string{"mkdirat", "unlinkat", "renameat", "renameat2", "flock",
				"statfs"}, s.name))
	})
	nothingPinned(t)
}

func testFaults(t *testing.T, wanted func(step) bool) {
	dir, outside := project(t), secret(t)
	tr := &tracer{}
	normal, status := tr.find(t, dir, outside)
	if normal == nil || normal.Secret != "ENOENT" || status.ExitStatus() != faultStatus {
		t.Fatalf("without a fault: %+v, status %#x after %d steps; want ENOENT, status %d; "+
			"it said %q", normal, int(status), len(tr.steps), faultStatus, tr.said)
	}
	before := leftovers(t)
	steps := some(tr.steps, wanted)
	t.Logf("%d steps, %d of them tried", len(tr.steps), len(steps))
	met, ran := 0, 0
	for i, s := range steps {
		t.Run(fmt.Sprintf("%02d", i), func(t *testing.T) {
			ran++
			for _, f := range []fault{fail, kill} {
				if testFault(t, &tracer{at: s, fault: f}, normal, before, dir, outside) {
					met++
				}
			}
		})
	}
	// Threads come in any order, so that a step may be missing in a run.
	if met < ran {
		t.Errorf("%d of %d steps were met in two runs each", met, ran)
	}
}

// testFault starts a jail in which one step goes wrong, and another after it. It reports
// whether the step was met.
func testFault(t *testing.T, tr *tracer, normal *finding, before []string, dir,
	outside string) bool {
	got, status := tr.find(t, dir, outside)
	what := fmt.Sprintf("%v at %v", tr.fault, tr.at)
	if got != nil {
		if diff := cmp.Diff(normal, got); diff != "" {
			t.Errorf("%s: the command ran in another jail (-normal +now):\n%s", what, diff)
		}
	} else if status.ExitStatus() == 0 {
		t.Errorf("%s: the command did not run and the status is 0", what)
	}
	if tr.fault == fail && got != nil && status.ExitStatus() != faultStatus &&
		status.ExitStatus() != 2 { // the Go runtime's, in a panic
		t.Errorf("%s: the command ran to its end and the status is %d, want %d", what,
			status.ExitStatus(), faultStatus)
	}
	eventually(t, what+": nothing of the jail is left running", func() bool {
		return len(alive(t, dir)) == 0
	})
	if cmp.Equal(before, leftovers(t)) && tr.fault == fail {
		return tr.met
	}
	_, stderr, next := run(t, jailed(dir, nil, "exit", "0"))
	if next != 0 || stderr != "" {
		t.Errorf("%s: the next start: status %d, stderr %q", what, next, stderr)
	}
	if diff := cmp.Diff(before, leftovers(t)); diff != "" {
		t.Errorf("%s: after the next jail's end (-before +after):\n%s", what, diff)
	}
	return tr.met
}

// find runs the finder in a jail under the tracer. What it found is nil when it did
// not run.
func (tr *tracer) find(t *testing.T, dir, outside string) (*finding, syscall.WaitStatus) {
	t.Helper()
	report := filepath.Join(dir, "report")
	os.Remove(report)
	output, err := os.Create(filepath.Join(home, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(output.Name())
	defer output.Close()
	status := tr.run(t, []string{agentLock, "--denials", "off", dir, "--",
		filepath.Join(dir, "probe"), "find", outside, report}, output)
	said, _ := os.ReadFile(output.Name())
	tr.said = string(said)
	eventually(t, "the command has ended", func() bool { return len(alive(t, dir)) == 0 })
	data, err := os.ReadFile(report)
	if err != nil {
		return nil, status
	}
	var got finding
	if err := json.Unmarshal(data, &got); err != nil {
		if tr.fault == kill {
			return nil, status // it was killed while it wrote
		}
		t.Errorf("%v at %v: the command's report: %v", tr.fault, tr.at, err)
		return nil, status
	}
	return &got, status
}

// some returns all steps that are wanted, or of many of a name the first and last
// ones and one between.
func some(all []step, wanted func(step) bool) []step {
	byName := map[step][]step{}
	var names []step
	for _, s := range all {
		name := step{s.role, s.name, 0}
		if !wanted(s) {
			continue
		}
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], s)
	}
	var chosen []step
	for _, name := range names {
		steps := byName[name]
		if n := len(steps); n > 4 && os.Getenv("AGENT_LOCK_FAULTS") != "all" {
			between := steps[1+rand.IntN(n-2)]
			steps = []step{steps[0], between, steps[n-1]}
		}
		chosen = append(chosen, steps...)
	}
	return chosen
}

// leftovers is what jails leave in the system while they run, but for the numbers.
func leftovers(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, set := range attachSets(t) {
		found = append(found, set)
		for _, name := range []string{"namespaces", "supervisors", "inits"} {
			m, err := ebpf.LoadPinnedMap(filepath.Join(set, "map-"+name), nil)
			if err != nil {
				found = append(found, fmt.Sprint(set, " is no set: ", err))
				continue
			}
			found = append(found, fmt.Sprint(name, " ", entries(t, m)))
			m.Close()
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	locks, err := filepath.Glob("/run/agent-lock/*")
	if err != nil {
		t.Fatal(err)
	}
	return append(append(found, locks...), string(mounts))
}

// entries counts what is in a map; in an array, what is not zero.
func entries(t *testing.T, m *ebpf.Map) int {
	t.Helper()
	n := 0
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	it := m.Iterate()
	for it.Next(&key, &value) {
		if m.Type() == ebpf.Hash || slices.ContainsFunc(value[:4], func(b byte) bool {
			return b != 0
		}) {
			n++
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func init() {
	probes["find"] = func(args []string) int {
		_, err := os.Open(args[0])
		f := finding{Secret: errnoName(err), Posture: readPosture()}
		mounts, _ := os.ReadFile("/proc/self/mounts")
		for line := range strings.Lines(string(mounts)) {
			fields := strings.Fields(line)
			f.Mounts = append(f.Mounts, strings.Join(fields[1:3], " "))
		}
		data, err := json.Marshal(f)
		if err == nil {
			err = os.WriteFile(args[1], data, 0o644)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		return faultStatus
	}
}
