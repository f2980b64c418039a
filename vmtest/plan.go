package vmtest

import (
	"strconv"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/report"
)

// Step is one command that the guest runs.
type Step struct {
	// Name is how the step is called in messages.
	Name string `json:"name"`
	// Argv is the command; Argv[0] is looked up in the guest's PATH.
	Argv []string `json:"argv"`
	// Env is added to the step's environment, as NAME=VALUE.
	Env []string `json:"env,omitempty"`
	// Dir is where it starts; empty: the home directory.
	Dir string `json:"dir,omitempty"`
	// Stdin is the guest's file that is its standard input; empty: /dev/null.
	Stdin string `json:"stdin,omitempty"`
	// Terminal gives it a terminal instead, which Input messages type into.
	Terminal bool `json:"terminal,omitempty"`
	// Timeout is after how long the guest kills the step and everything in its
	// process group. Zero: StepTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Results says that each line of the step's standard output is a
	// report.Result. A line that is not, or no line at all, breaks the cell.
	Results bool `json:"results,omitempty"`
	// User runs the step as the unprivileged user dev instead of root.
	User bool `json:"user,omitempty"`
	// StopOnFail ends the plan when the step's exit status is not 0.
	StopOnFail bool `json:"stop_on_fail,omitempty"`
	// Quiet keeps what the step prints out of Config.Text. The cell has its end.
	Quiet bool `json:"-"`
	// Check, when set, compares the step's exit status with its results. An error
	// breaks the cell: one of the two is wrong.
	Check func(status int, results []report.Result) error `json:"-"`
}

// StepTimeout is the time a step has unless it says otherwise.
const StepTimeout = 5 * time.Minute

// StepStatus is how a step ended.
type StepStatus struct {
	Step int `json:"step"`
	// Status is the exit status as a shell would give it: 126 or 127 when the
	// command could not be started, 128+n when signal n ended it.
	Status   int           `json:"status"`
	Signal   int           `json:"signal,omitempty"`
	TimedOut bool          `json:"timed_out,omitempty"`
	Error    string        `json:"error,omitempty"` // why it could not be run or read
	Results  int           `json:"results,omitempty"`
	Duration time.Duration `json:"duration,omitempty"`
}

// describe says in a few words how a step ended.
func (s StepStatus) describe() string {
	switch {
	case s.TimedOut:
		return "killed after its timeout of " + s.Duration.Round(time.Second).String()
	case s.Error != "":
		return s.Error
	case s.Signal != 0:
		return "killed by " + syscall.Signal(s.Signal).String()
	}
	return "exit status " + strconv.Itoa(s.Status)
}

// File is a host file that is wanted in the guest.
type File struct {
	Host  string // path on the host; a regular file
	Guest string // absolute path in the guest; its folders are made
	Mode  uint32 // permission bits; zero: those of the host file
}

// Tree is a folder of the host's whose content is put into the guest, as root's.
type Tree struct {
	Host  string
	Guest string // absolute path of a folder, which is made; empty: the root directory
	// Readable lets everybody in the guest do what the owner may here, but for writing.
	Readable bool
}

// Share is a folder of the host's that the guest can read and write through 9p.
type Share struct {
	Host string // path of the folder
	// Guest is where pid 1 mounts it when it is an absolute path; else it is the
	// mount tag, for a step to mount.
	Guest string
}

// shareModules are what a share needs of the kernel.
var shareModules = []string{"virtio_pci", "9pnet_virtio", "9p"}

// plan is what the host tells pid 1, as plan.json in the per-run archive.
type plan struct {
	// Nonce proves to the host that hello and end come from this run's pid 1. It
	// is not on the kernel command line, which every process can read.
	Nonce string     `json:"nonce"`
	Steps []Step     `json:"steps"`
	Files []planFile `json:"files"`
	// Tree says that the archive has the folder "tree".
	Tree    bool         `json:"tree,omitempty"`
	Modules []planModule `json:"modules,omitempty"`
	Mounts  []planMount  `json:"mounts,omitempty"`
}

// planModule is a module in the archive. Loading one that was not asked for, but
// might be of use to others, may fail.
type planModule struct {
	Archive string `json:"archive"`
	Name    string `json:"name"`
	Wanted  bool   `json:"wanted,omitempty"`
}

// planMount is a share that pid 1 mounts.
type planMount struct {
	Tag   string `json:"tag"`
	Guest string `json:"guest"`
}

// planFile says where a file of the archive belongs.
type planFile struct {
	Archive string `json:"archive"`
	Guest   string `json:"guest"`
	Mode    uint32 `json:"mode"`
}
