package adversary

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	doorSource   = "D69 CVE-2022-0492 aigate CDK"
	tamperSource = "D48"

	needsBPF     = "CONFIG_BPF_SYSCALL"
	needsModules = "CONFIG_MODULES, no enforced signatures"
)

// kernelDoors: ways to run code in the kernel, or as root outside, from within.
var kernelDoors = []Case{
	door("core_pattern", "/proc/sys/kernel/core_pattern"),
	door("modprobe", "/proc/sys/kernel/modprobe"),
	door("sysrq", "/proc/sysrq-trigger"),
	door("uevent_helper", "/sys/kernel/uevent_helper"),
	door("binfmt", "/proc/sys/fs/binfmt_misc/register"),
	door("irq", "/proc/irq/default_smp_affinity"),
	door("sysfs", "/sys/kernel/mm/transparent_hugepage/enabled"),
	door("module_parameter", "/sys/module/kernel/parameters/panic"),
	door("security", "/sys/kernel/security/lockdown"),
	door("tracing", "/sys/kernel/tracing/tracing_on"),
	door("debug", "/sys/kernel/debug/sched/features").since("5.13"),
	{
		Name: "kernel_core_pattern_write", Family: "kernel", Source: doorSource, Root: true,
		Guest: true, What: "has the kernel pipe core dumps to a program", Hooks: opens,
		Calls: "openat, write",
		Setup: restoring("/proc/sys/kernel/core_pattern"),
		Attack: func(*Target) ([]byte, error) {
			return nil, scribble("/proc/sys/kernel/core_pattern", 0)
		},
		Judge: fileHas("/proc/sys/kernel/core_pattern"),
	},
	{
		Name: "kernel_module_init", Family: "kernel", Source: "D69", Root: true,
		What:  "hands the kernel a module (init_module)",
		Calls: "init_module", Needs: needsModules,
		Hooks: []string{"kernel_load_data", "capable"},
		Setup: named("module"), Judge: logged("module"),
		Attack: func(t *Target) ([]byte, error) {
			return nil, call("init_module", unix.InitModule(uselessModule(t.Args["module"]), ""))
		},
	},
	{
		Name: "kernel_module_file", Family: "kernel", Source: "D69", Root: true,
		What:  "hands the kernel the file of a module (finit_module)",
		Calls: "finit_module", Needs: needsModules,
		Hooks: []string{"kernel_read_file", "capable"},
		Setup: named("module"), Judge: logged("module"),
		Attack: func(t *Target) ([]byte, error) {
			path := t.in("useless.ko")
			if err := os.WriteFile(path, uselessModule(t.Args["module"]), 0o600); err != nil {
				return nil, need(err)
			}
			f, err := os.Open(path)
			if err != nil {
				return nil, need(err)
			}
			defer f.Close()
			return nil, call("finit_module", unix.FinitModule(int(f.Fd()), "", 0))
		},
	},
	{
		Name: "kernel_module_request", Family: "kernel", Source: "D69", Root: true, Guest: true,
		What:  "makes the kernel look for a module, by a program of unknown format",
		Calls: "execve, socket", Needs: "CONFIG_MODULES",
		Hooks: []string{"kernel_module_request"},
		Setup: replaceModprobe, Attack: attackFormat, Judge: ranOutside,
	},
	{
		Name: "kernel_kexec", Family: "kernel", Source: "D69", Root: true, Guest: true,
		What:  "loads another kernel to start (kexec_load)",
		Calls: "kexec_load", Needs: "CONFIG_KEXEC",
		Hooks: []string{"kernel_load_data", "capable"},
		Setup: func(s *Scene) error {
			if runtime.GOARCH != "amd64" {
				// Linux 6.12 on arm64 oopses in trans_pgd_create_copy.
				return errAMD64
			}
			s.onClose(func() { _ = kexecLoad(nil) })
			return onlyIf("/sys/kernel/kexec_loaded")(s)
		},
		Attack: func(*Target) ([]byte, error) {
			return nil, call("kexec_load", kexecLoad([]byte("no kernel")))
		},
		Judge: Judge{"/sys/kernel/kexec_loaded says 1", func(*Scene) string {
			if data, err := os.ReadFile("/sys/kernel/kexec_loaded"); err != nil || data[0] != '1' {
				return ""
			}
			return "another kernel is loaded"
		}},
	},
	{
		Name: "kernel_bpf_map", Family: "kernel", Source: tamperSource, Root: true,
		What: "makes a BPF map", Hooks: []string{"bpf", "bpf_map", "capable"},
		Calls: "bpf(BPF_MAP_CREATE)", Needs: needsBPF,
		Attack:    holding(func(*Target) (int, error) { return bpfMap() }),
		Meanwhile: has("map_type:"), Judge: mapHeld,
	},
	{
		Name: "kernel_bpf_program", Family: "kernel", Source: tamperSource, Root: true,
		What:      "gets hold of a BPF program by its number",
		Calls:     "bpf(BPF_PROG_GET_NEXT_ID), bpf(BPF_PROG_GET_FD_BY_ID)",
		Needs:     needsBPF + ", a loaded program",
		Hooks:     []string{"bpf", "bpf_prog", "capable"},
		Attack:    holding(func(*Target) (int, error) { return bpfAnyProgram() }),
		Meanwhile: has("prog_type:"),
		Judge:     seen("the attacker has a descriptor of a BPF program"),
	},
	{
		Name: "kernel_bpf_numbers", Family: "kernel", Source: tamperSource, Root: true,
		What: "lists the machine's BPF programs", Hooks: []string{"bpf", "capable"},
		Calls: "bpf(BPF_PROG_GET_NEXT_ID)", Needs: needsBPF + ", a loaded program",
		Setup: func(*Scene) error {
			list, err := bpfPrograms()
			if list == "" {
				return errors.Join(err, errors.New("no BPF program is loaded"))
			}
			return nil
		},
		Attack: func(*Target) ([]byte, error) {
			list, err := bpfPrograms()
			return []byte(list), err
		},
		Judge: Judge{"what the attacker sent out is the list of programs", func(s *Scene) string {
			if list, err := bpfPrograms(); err == nil && list != "" && list == string(s.Loot) {
				return "the numbers of the machine's BPF programs were sent out"
			}
			return ""
		}},
	},
	{
		Name: "kernel_bpf_pin", Family: "kernel", Source: tamperSource, Root: true,
		What: "removes a pin in bpffs", Hooks: []string{"path_unlink"},
		Calls: "unlinkat", Needs: needsBPF + ", bpffs",
		Setup: pinMap, Judge: pinGone,
		Attack: func(t *Target) ([]byte, error) {
			return nil, call("unlink", unix.Unlink(t.Args["pin"]))
		},
	},
	{
		Name: "kernel_bpf_pin_get", Family: "kernel", Source: tamperSource, Root: true,
		What: "opens a pinned map", Hooks: []string{"bpf", "bpf_map", "capable"},
		Calls: "bpf(BPF_OBJ_GET)", Needs: needsBPF + ", bpffs",
		Setup: pinMap, Meanwhile: has("map_type:"), Judge: mapHeld,
		Attack: holding(func(t *Target) (int, error) { return bpfGet(t.Args["pin"]) }),
	},
	{
		Name: "kernel_perf", Family: "kernel", Source: "D66 KSPP#117", Root: true,
		What:  "watches the whole machine by performance counters",
		Calls: "perf_event_open", Needs: "CONFIG_PERF_EVENTS",
		Hooks: []string{"perf_event_open", "capable"},
		Attack: holding(func(*Target) (int, error) {
			attr := &unix.PerfEventAttr{
				Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
				Size: unix.PERF_ATTR_SIZE_VER0,
			}
			fd, err := unix.PerfEventOpen(attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
			return fd, call("perf_event_open", err)
		}),
		Meanwhile: has("[perf_event]"),
		Judge:     seen("the attacker has a descriptor of a performance counter"),
	},
	{
		Name: "kernel_fanotify", Family: "kernel", Source: "D33", Root: true,
		What: "makes a fanotify group that may hold up the machine's opens", Hooks: capability,
		Calls: "fanotify_init(FAN_CLASS_CONTENT)", Needs: "CONFIG_FANOTIFY",
		Attack: holding(func(*Target) (int, error) {
			fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
			return fd, call("fanotify_init", err)
		}),
		Meanwhile: has("fanotify"),
		Judge:     seen("the attacker has a descriptor of a fanotify group"),
	},
}

var mapHeld = seen("the attacker has a descriptor of a BPF map")

// door is a file that gives the machine to whoever writes it.
func door(name, path string) Case {
	return Case{
		Name: "kernel_open_" + name, Family: "kernel", Source: doorSource, Root: true,
		What: "opens " + path + " for writing", Calls: "openat", Needs: path, Hooks: opens,
		Setup: onlyIf(path), Attack: opening(path), Meanwhile: writable(path),
		Judge: seen("the attacker has " + path + " open for writing"),
	}
}

// uselessModule is an object file with a name that the kernel complains about in
// its log, by that name, once it has taken it for a module: it has no symbols.
func uselessModule(name string) []byte {
	names := "\x00.modinfo\x00.shstrtab\x00.gnu.linkonce.this_module\x00"
	info := "name=" + name + "\x00"
	const headerSize, sectionSize = 64, 64
	infoAt := uint64(headerSize)
	namesAt := infoAt + uint64(len(info))
	thisAt := namesAt + uint64(len(names))
	const thisSize = 4096
	tableAt := (thisAt + thisSize + 7) &^ 7
	machine := map[string]uint16{"x86_64": 62, "aarch64": 183}[machineName()]
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // a buffer takes everything
		}
	}
	put([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9), uint16(1), machine, uint32(1),
		uint64(0), uint64(0), tableAt, uint32(0), uint16(headerSize), uint16(0), uint16(0),
		uint16(sectionSize), uint16(4), uint16(2))
	put([]byte(info), []byte(names), make([]byte, tableAt-thisAt))
	section := func(name string, kind uint32, flags, at, size uint64) {
		index := uint32(0)
		if name != "" {
			index = uint32(strings.Index(names, name))
		}
		put(index, kind, flags, uint64(0), at, size, uint32(0), uint32(0), uint64(1), uint64(0))
	}
	section("", 0, 0, 0, 0)
	section(".modinfo", 1, 2, infoAt, uint64(len(info)))
	section(".shstrtab", 3, 0, namesAt, uint64(len(names)))
	section(".gnu.linkonce.this_module", 1, 3, thisAt, thisSize)
	return b.Bytes()
}

func machineName() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Machine[:])
}

// helperSuffix marks the script that the kernel runs as its modprobe.
const helperSuffix = "/modprobe-of-the-suite"

// replaceModprobe has the kernel run a script of ours instead of modprobe, whose
// interpreter is the attacker's program.
func replaceModprobe(s *Scene) error {
	const knob = "/proc/sys/kernel/modprobe"
	if err := restoring(knob)(s); err != nil {
		return err
	}
	script := s.Target.Outside + helperSuffix
	text := fmt.Sprintf("#!%s %s\n", s.arena.attacker, attackerVerb)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		return err
	}
	return os.WriteFile(knob, []byte(script), 0)
}

// beHelper is what the script does.
func beHelper(script string) error { return os.WriteFile(script+".ran", nil, 0o600) }

// ranOutside looks for what the script leaves.
var ranOutside = Judge{"the kernel ran the modprobe of the suite", func(s *Scene) string {
	if _, err := os.Stat(s.Target.Outside + helperSuffix + ".ran"); err != nil {
		return ""
	}
	return "the kernel ran a program outside"
}}

// attackFormat executes what no loader of the kernel knows, and asks for a protocol
// that it does not have: either makes it look for a module.
func attackFormat(t *Target) ([]byte, error) {
	path := t.in("program")
	if err := os.WriteFile(path, []byte{1, 2, 0xfe, 0xca, 0, 0, 0, 0}, 0o700); err != nil {
		return nil, need(err)
	}
	_, err := startProgram(path)
	fd, socketErr := unix.Socket(unix.AF_X25, unix.SOCK_SEQPACKET, 0)
	if socketErr == nil {
		unix.Close(fd)
	}
	return nil, errors.Join(call("execve", err), call("socket", socketErr))
}

func startProgram(path string) (*os.Process, error) {
	return os.StartProcess(path, []string{path}, &os.ProcAttr{})
}
