package event

import "testing"

func TestString(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   Event
		want string
	}{
		{"with_remedy", Event{
			Hook: "file_open", Tried: "open for reading", Path: "/x", Errno: "ENOENT", PID: 7,
			Comm: "cat", Rule: "no rule covers it", Remedy: "--ro /x",
		}, "denied: open for reading /x (ENOENT) by cat[7]: no rule covers it; " +
			"allow it with --ro /x"},
		{"without_object", Event{
			Hook: "sb_mount", Tried: "mount", Errno: "EPERM", PID: 7, Comm: "mount",
			Rule: "a jail never does this",
		}, "denied: mount (EPERM) by mount[7]: a jail never does this; no flag allows this"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.String(); got != tt.want {
				t.Errorf("String() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTried(t *testing.T) {
	for _, tt := range []struct {
		hook                 string
		read, write, execute bool
		want                 string
	}{
		{"file_open", true, false, false, "open for reading"},
		{"file_open", false, true, false, "open for writing"},
		{"file_open", true, true, false, "open for reading and writing"},
		{"file_open", true, false, true, "execute"},
		{"path_unlink", false, true, false, "remove"},
		{"new_hook", true, false, false, "new_hook"},
	} {
		if got := Tried(tt.hook, tt.read, tt.write, tt.execute); got != tt.want {
			t.Errorf("Tried(%q, %v, %v, %v) = %q, want %q",
				tt.hook, tt.read, tt.write, tt.execute, got, tt.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain /x y":            "plain /x y",
		"größe 日本":              "größe 日本",
		"a\x1b]52;c;x\x07b":     `a\x1b]52;c;x\ab`,
		"a\nagent-lock: b\r":    `a\nagent-lock: b\r`,
		"bad \xff\xfe utf-8":    `bad \xff\xfe utf-8`,
		"right\u202eto left":    `right\u202eto left`,
		"replacement \uFFFD ok": "replacement \uFFFD ok",
		"c1 \u009b31m":          `c1 \u009b31m`,
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}
