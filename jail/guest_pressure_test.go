//go:build guest

package jail_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A flood of denials changes no verdict, and each of them is either recorded or
// counted.
func TestFloodOfDenials(t *testing.T) {
	const tries = 100_000
	dir, outside := project(t), secret(t)
	log := filepath.Join(home, "flood.jsonl")
	defer os.Remove(log)
	out, stderr, status := run(t, jailed(dir, []string{"--log", log}, "flood", outside,
		strconv.Itoa(tries)))
	if out != "refused 100000\n" || status != 0 {
		t.Errorf("flood = %q, status %d; want every open refused; stderr: %s", out, status, stderr)
	}
	recorded := 0
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e struct{ Path string }
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if e.Path == outside {
			recorded++
		}
	}
	lost, tooFast := 0, regexp.MustCompile(`(\d+) more denials came too fast`)
	if m := tooFast.FindStringSubmatch(stderr); m != nil {
		lost, _ = strconv.Atoi(m[1])
	}
	if recorded+lost != tries {
		t.Errorf("%d recorded and %d lost, want %d together", recorded, lost, tries)
	}
	t.Logf("%d recorded, %d lost", recorded, lost)
}

// A supervisor that stands still does not open the jail, also when nobody reads its
// denials any more.
func TestSupervisorStopped(t *testing.T) {
	dir, outside := project(t), secret(t)
	cmd := jailed(dir, []string{"--denials", "off"}, "flood-when-told", "flood", outside, "5000")
	startWith(t, cmd, filepath.Join(dir, "flood"))
	if t.Failed() {
		return
	}
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "flood-go"), nil, 0o644)
	result := filepath.Join(dir, "flood-result")
	eventually(t, "the jail goes on", func() bool {
		data, err := os.ReadFile(result)
		return err == nil && len(data) > 0
	})
	if got, _ := os.ReadFile(result); string(got) != "refused 5000" {
		t.Errorf("beside a stopped supervisor: %q, want every open refused", got)
	}
	cmd.Process.Signal(unix.SIGCONT)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 0 {
		t.Errorf("status %d after SIGCONT, want 0", got)
	}
}

// A log that cannot be written to changes no verdict and is said once.
func TestLogOnAFullDisk(t *testing.T) {
	dir, outside := project(t), secret(t)
	disk := filepath.Join(home, "disk")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(disk)
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=16k,mode=777"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	out, stderr, status := run(t, jailed(dir, []string{"--denials", "live", "--log",
		filepath.Join(disk, "log")}, "flood", outside, "500"))
	if out != "refused 500\n" || status != 0 {
		t.Errorf("with a full disk: %q, status %d; want every open refused", out, status)
	}
	if n := strings.Count(stderr, "write denial log"); n != 1 ||
		!strings.Contains(stderr, "no space left") {
		t.Errorf("stderr = %q, want it to say once that there is no space left", stderr)
	}
}

// However many processes and threads a jail has, and whoever made them: the newest
// is jailed like the first. As many as the guest has memory for.
func TestManyProcessesAndThreads(t *testing.T) {
	for name, n := range map[string]int{"kernel/threads-max": 40_000, "kernel/pid_max": 60_000,
		"vm/max_map_count": 1 << 20} {
		path := "/proc/sys/" + name
		before, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(strconv.Itoa(n)), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer os.WriteFile(path, before, 0)
	}
	var old unix.Rlimit
	all := unix.Rlimit{Cur: 40_000, Max: 40_000}
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &all, &old); err != nil {
		t.Fatal(err)
	}
	defer unix.Prlimit(0, unix.RLIMIT_NPROC, &old, nil)
	processes, threads := 2000, 8000 // a process is made in eights
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	// A process takes about 160 kB of the kernel's memory and its own, a thread 40.
	if free := info.Freeram * uint64(info.Unit) / 2; free < 700<<20 {
		scale := float64(free) / (700 << 20)
		processes, threads = int(float64(processes)*scale)/8*8, int(float64(threads)*scale)
	}
	cmd := jailed(project(t), []string{"--denials", "off"}, "crowd", strconv.Itoa(processes),
		strconv.Itoa(threads), secret(t))
	out, stderr, status := run(t, cmd)
	want := fmt.Sprintf("%d processes, %d threads\nnewest ENOENT\nnewest thread ENOENT\n"+
		"after threads have ended ENOENT\n", processes, threads)
	if out != want || status != 0 {
		t.Errorf("crowd = %q, status %d, want %q; stderr: %s", out, status, want, stderr)
	}
	t.Log(strings.SplitN(out, "\n", 2)[0])
}

func flood(path string, tries int) int {
	refused := 0
	for range tries {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == unix.ENOENT {
			refused++
		} else {
			unix.Close(fd)
		}
	}
	return refused
}

// crowd makes processes from threads that are not the leader, ending those threads,
// and threads; then the newest of each tries to open a file.
func crowd(args []string) int {
	processes, _ := strconv.Atoi(args[0])
	threads, _ := strconv.Atoi(args[1])
	debug.SetMaxThreads(1 << 16)
	made := 0
	for range processes / 8 {
		pids := make(chan int, 8)
		go func() { // a thread of its own, which ends with the goroutine
			runtime.LockOSThread()
			for range 8 {
				pids <- forkPaused()
			}
		}()
		for range 8 {
			if pid := <-pids; pid > 0 {
				made++
			}
		}
	}
	done := make(chan bool)
	results := make(chan string)
	running := 0
	for range threads {
		ready := make(chan bool)
		go func() {
			runtime.LockOSThread()
			ready <- true
			if <-done { // the newest
				_, err := os.Open(args[2])
				results <- errnoName(err)
			}
		}()
		<-ready
		running++
	}
	fmt.Printf("%d processes, %d threads\n", made, running)
	out, _ := exec.Command("/proc/self/exe", "open", args[2]).Output()
	fmt.Print("newest ", string(out))
	done <- true
	fmt.Println("newest thread", <-results)
	close(done) // the others end
	time.Sleep(time.Second)
	_, err := os.Open(args[2])
	fmt.Println("after threads have ended", errnoName(err))
	return 0
}

// forkPaused forks a process that waits until it is killed. It is a copy of one
// thread of a Go program: it may make system calls and nothing else.
//
//go:norace
//go:nosplit
func forkPaused() int {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return -int(errno)
	}
	if pid == 0 {
		for {
			unix.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
		}
	}
	return int(pid)
}

func init() {
	probes["flood"] = func(args []string) int {
		n, _ := strconv.Atoi(args[1])
		fmt.Println("refused", flood(args[0], n))
		return 0
	}
	probes["flood-when-told"] = func(args []string) int {
		n, _ := strconv.Atoi(args[2])
		return whenTold(args[0], func() string {
			return fmt.Sprint("refused ", flood(args[1], n))
		})
	}
	probes["crowd"] = crowd
}
