package vmtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-lock/agent-lock/report"

	"github.com/agent-lock/agent-lock/kernels"
)

// script makes a program that stands in for QEMU: its descriptors 3 and 4 are the
// guest's serial ports.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// follow runs a guest whose QEMU is a script.
func follow(t *testing.T, ctx context.Context, qemu string, l limits) *guest {
	t.Helper()
	return followOn(t, ctx, machineSpec{qemu: qemu}, l)
}

func followOn(t *testing.T, ctx context.Context, spec machineSpec, l limits) *guest {
	t.Helper()
	g := &guest{
		cell:    &Cell{Label: "x", Fault: FaultQEMU},
		limits:  l,
		onText:  func(textPayload) {},
		onStep:  func(Step) {},
		record:  &record{nopCloser{}, nopCloser{}},
		results: map[int][]report.Result{},
		stream:  stream{nonce: "00"},
	}
	if err := g.run(ctx, spec); err != nil {
		t.Fatalf("run = %v", err)
	}
	return g
}

const banner = `echo '[    0.000000] Linux version 6.1' >&3; `

func TestFollow(t *testing.T) {
	hello := string(mustEncode(t, 0, frameHello, helloPayload{Nonce: "00"}))
	beat := string(mustEncode(t, 1, frameBeat, struct{}{}))
	end := string(mustEncode(t, 2, frameEnd, endPayload{Nonce: "00"}))
	say := func(frames ...string) string {
		return "echo '" + strings.Join(frames, "' >&4; echo '") + "' >&4; "
	}
	long := limits{hello: time.Minute, idle: time.Minute, exit: time.Minute}
	for _, tt := range []struct {
		name   string
		body   string
		limits limits
		want   Fault
		detail string
	}{
		{"whole", banner + say(hello, beat, end) + "exit 33", long, "", ""},
		{"power_off", banner + say(hello, beat, end) + "exit 0", long, FaultTruncated,
			"status is 0"},
		{"other_status", banner + say(hello, beat, end) + "exit 35", long, FaultTruncated,
			"status is 35"},
		{"no_end", banner + say(hello, beat) + "exit 33", long, FaultTruncated, "after 2 frames"},
		{"half_a_frame", banner + say(hello) + "printf '" + beat[:9] + "' >&4; exit 33", long,
			FaultTruncated, "in the middle of frame 1"},
		{"gap", banner + say(hello, end) + "exit 33", long, FaultStream, "frame 2 follows frame 0"},
		{"noise", banner + say(hello, "noise") + "sleep 60", long, FaultStream, "noise"},
		{"qemu_refuses", "echo 'no such machine' >&2; exit 1", long, FaultQEMU, "no such machine"},
		{"no_hello", banner + "exit 0", long, FaultBoot, "before pid 1 said hello"},
		{"silent", "sleep 60", limits{banner: time.Millisecond, hello: time.Minute}, FaultNoOutput,
			"no line of the kernel"},
		{"stub_only", "echo Probing EDD >&3; sleep 60",
			limits{banner: 2 * time.Second, hello: time.Minute}, FaultBoot,
			"no line of the kernel"},
		{"slow_hello", banner + "sleep 60", limits{hello: 2 * time.Second}, FaultBoot,
			"no hello"},
		{"idle", banner + say(hello) + "sleep 60",
			limits{hello: time.Minute, idle: 300 * time.Millisecond}, FaultHang, "no frame within"},
		{"stays_on", banner + say(hello, beat, end) + "sleep 60",
			limits{hello: time.Minute, idle: time.Minute, exit: 300 * time.Millisecond},
			FaultHang, "did not end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			qemu := script(t, tt.body) // before another test forks with the file open
			t.Parallel()
			g := follow(t, t.Context(), qemu, tt.limits)
			if g.cell.Fault != tt.want || !strings.Contains(g.cell.Detail, tt.detail) {
				t.Errorf("cell = %q (%s), want %q (…%s…)",
					g.cell.Fault, g.cell.Detail, tt.want, tt.detail)
			}
		})
	}
}

func TestFollowStopsWithItsContext(t *testing.T) {
	long, sleep := limits{hello: time.Minute}, script(t, "sleep 60")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if g := follow(t, ctx, sleep, long); g.cell.Fault != FaultInterrupted {
		t.Errorf("cell = %q, want interrupted", g.cell.Fault)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if g := follow(t, ctx, sleep, long); g.cell.Fault != FaultTimeout {
		t.Errorf("cell = %q, want timeout", g.cell.Fault)
	}
}

func TestProbeGivesUpOnAHungGuest(t *testing.T) {
	broken := script(t, "echo 'KVM internal error. Suberror: 1' >&2; sleep 60")
	kvm := machineType{arch: kernels.AMD64, accel: accelKVM, cpus: 2, memoryMB: 64}
	err := probe(broken, kvm)
	if err == nil || !strings.Contains(err.Error(), "KVM internal error") {
		t.Errorf("probe = %v, want KVM's internal error", err)
	}
	err = probe(script(t, "sleep 60"), kvm)
	if err == nil || !strings.Contains(err.Error(), "hung") {
		t.Errorf("probe = %v, want a hung guest", err)
	}
}

// A board without an exit device ends normally when its guest switches it off, and in
// no other way; the frames have to be whole all the same.
func TestFollowMonitored(t *testing.T) {
	frames := "echo '" + string(mustEncode(t, 0, frameHello, helloPayload{Nonce: "00"})) +
		"' >&4; echo '" + string(mustEncode(t, 1, frameEnd, endPayload{Nonce: "00"})) + "' >&4; "
	event := func(reason string) string {
		return `read -r ask <&5; echo '{"return": {}}' >&5; echo '{"event": "SHUTDOWN", "data": ` +
			`{"guest": true, "reason": "` + reason + `"}}' >&5; `
	}
	long := limits{hello: time.Minute, idle: time.Minute, exit: time.Minute}
	for _, tt := range []struct {
		name, body string
		want       Fault
	}{
		{"off", banner + frames + event(switchedOff), ""},
		{"started_again", banner + frames + event("guest-reset"), FaultTruncated},
		{"killed", banner + frames + event("host-signal"), FaultTruncated},
		{"silent", banner + frames, FaultTruncated},
		{"off_early", banner + event(switchedOff), FaultBoot},
		{"off_and_failed", banner + frames + event(switchedOff) + "exit 1", FaultTruncated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := machineSpec{qemu: script(t, tt.body),
				machineType: machineType{arch: kernels.ARM64}}
			if g := followOn(t, t.Context(), spec, long); g.cell.Fault != tt.want {
				t.Errorf("fault %q (%s), want %q", g.cell.Fault, g.cell.Detail, tt.want)
			}
		})
	}
}
