package adversary

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const executeSource = "D74"

// execution: programs outside that may be executed and not read, as far as their mode goes.
// They write a canary that is in them; the kernel opens them, each time in another way.
var execution = []Case{
	execute("exec_path", executeSource, "executes an outside program by its path", "execve",
		func(t *Target) ([]byte, error) { return start(t.out("program"), nil, "program") }),
	execute("exec_empty_path", "D74 D19", "executes an O_PATH descriptor of it",
		"execveat(AT_EMPTY_PATH)", func(t *Target) ([]byte, error) {
			return start(os.Args[0], nil, "execveat", t.out("program"))
		}),
	execute("exec_script", executeSource, "has the kernel execute it for a script of the "+
		"project that begins with #! and its path", "execve",
		func(t *Target) ([]byte, error) {
			script := "#!" + t.out("program") + "\n"
			err := os.WriteFile(t.in("script"), []byte(script), 0o700)
			if err != nil {
				return nil, need(err)
			}
			return start(t.in("script"), nil, "program")
		}),
	execute("exec_loader", executeSource, "has the kernel load it as the loader of a program "+
		"of the project", "execve",
		func(t *Target) ([]byte, error) {
			program := elfProgram(t.out("program"), "")
			if err := os.WriteFile(t.in("program"), program, 0o700); err != nil {
				return nil, need(err)
			}
			return start(t.in("program"), nil, "program")
		}),
}

func execute(name, source, what, calls string,
	attack func(*Target) ([]byte, error)) Case {
	return Case{
		Name: name, Family: "execution", Source: source, What: what,
		Calls: calls, Hooks: opens,
		Setup: writeProgram, Attack: attack, Judge: tokenRead,
	}
}

// writeProgram makes a program that writes the canary as a step does.
func writeProgram(s *Scene) error {
	return os.WriteFile(s.Out("program"), elfProgram("", "+"+s.Token), 0o111)
}

// writeText are the instructions of a program that writes the n bytes after them.
func writeText(n int) []byte {
	if runtime.GOARCH == "arm64" {
		var code []byte
		for _, instruction := range []uint32{
			0xd2800020,                // mov x0, #1
			0x100000e1,                // adr x1, .+28: the text
			0xd2800002 | uint32(n)<<5, // mov x2, its length
			0xd2800808,                // mov x8, SYS_write
			0xd4000001,                // svc #0
			0xd2800000,                // mov x0, #0
			0xd2800ba8,                // mov x8, SYS_exit
			0xd4000001,                // svc #0
		} {
			code = binary.LittleEndian.AppendUint32(code, instruction)
		}
		return code
	}
	code := append([]byte{0xb8, 1, 0, 0, 0, // mov eax, SYS_write
		0xbf, 1, 0, 0, 0, // mov edi, 1
		0x48, 0x8d, 0x35, 16, 0, 0, 0, // lea rsi, [rip+16]: the text
		0xba}, word32(n)...) // mov edx, its length
	return append(code, 0x0f, 0x05, // syscall
		0xb8, 60, 0, 0, 0, // mov eax, SYS_exit
		0x31, 0xff, // xor edi, edi
		0x0f, 0x05) // syscall
}

// machines are the processors that a program can be for, as its header has them.
var machines = map[string]uint16{"amd64": 62, "arm64": 183}

// elfProgram is a program of one segment that writes a text, wherever it is loaded; with a
// loader it has that named in a header of its own.
func elfProgram(loader, text string) []byte {
	const (
		header, segment  = 64, 56
		shared           = 3
		load, interp     = 1, 3
		readable, all    = 4, 7 // Linux 6.1 writes to the end of a loader's page
		fields, pageSize = 32, 4096
	)
	segments := 1
	if loader != "" {
		segments, text = 2, loader+"\x00"
	}
	code := writeText(len(text))
	at := header + segments*segment
	size := at + len(code) + len(text)
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // does not fail
		}
	}
	put([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9), uint16(shared),
		machines[runtime.GOARCH], uint32(1),
		uint64(at), uint64(header), uint64(0), uint32(0), uint16(header), uint16(segment),
		uint16(segments), [3]uint16{})
	if loader != "" {
		where := uint64(at + len(code))
		put(uint32(interp), uint32(readable), where, where, where, uint64(len(text)),
			uint64(len(text)), uint64(1))
	}
	put(uint32(load), uint32(all), uint64(0), uint64(0), uint64(0), uint64(size), uint64(size),
		uint64(pageSize), code, []byte(text))
	return b.Bytes()
}

func word32(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

// stepExecveat becomes the program that a path names.
func stepExecveat(args []string) ([]byte, error) {
	fd, err := openPath(args[0])
	if err != nil {
		return nil, err
	}
	argv := [2]uintptr{cstring("program")}
	_, _, errno := unix.Syscall6(unix.SYS_EXECVEAT, uintptr(fd), cstring(""),
		uintptr(unsafe.Pointer(&argv)), uintptr(unsafe.Pointer(&argv[1])), unix.AT_EMPTY_PATH, 0)
	return nil, call("execveat", errno)
}
