package adversary

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/report"
	"github.com/google/go-cmp/cmp"
)

// victimOf is a user whom any sandbox can run a command for: some want an entry in
// /etc/passwd, and some give root another sandbox than everybody else.
func victimOf(t *testing.T) User {
	t.Helper()
	if os.Getuid() != 0 {
		return ourselves(t)
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Skip(err)
	}
	entry := regexp.MustCompile(`(?m)^([^:]*):[^:]*:[1-5]\d{3}:`).FindSubmatch(passwd)
	if entry == nil {
		t.Skip("needs an ordinary user in /etc/passwd")
	}
	u, err := Named(string(entry[1]))
	if err != nil {
		t.Fatal(err)
	}
	u.Home = homeOf(t, u.UID)
	if err := os.Chown(u.Home, u.UID, u.GID); err != nil {
		t.Fatal(err)
	}
	return u
}

// restrictsUserNamespaces reports whether AppArmor forbids most programs what the
// sandboxes that are not setuid need, as Ubuntu does.
func restrictsUserNamespaces() bool {
	b, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

// TestDefinitions starts each sandbox that is here. That the attacker can work in the
// project is checked by Run itself.
func TestDefinitions(t *testing.T) {
	cases := Select(regexp.MustCompile("^traversal_(absolute|write)$"))
	for _, d := range Definitions() {
		t.Run(d.Name, func(t *testing.T) {
			found, err := d.Find(t.Context())
			if err != nil {
				t.Skip(err)
			}
			if found.Version == "" && d.Version != nil {
				t.Errorf("%q says nothing, want a version", d.Version)
			}
			u := victimOf(t)
			jail, done, err := d.Jail(u)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			results, err := Run(t.Context(), Options{Jail: jail, User: u, Cases: cases})
			if err != nil && d.Name != "env" && restrictsUserNamespaces() {
				t.Skipf("kernel.apparmor_restrict_unprivileged_userns is set: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := report.Denied
			if d.Open {
				want = report.Leaked
			}
			for _, r := range results {
				if r.Outcome != want {
					t.Errorf("%s in %s: %s (%s), want %s", r.Name, found.Version, r.Outcome,
						r.Detail, want)
				}
			}
			checkEmpty(t, u.Home)
		})
	}
}

// TestDefinitionTable checks what the type cannot.
func TestDefinitionTable(t *testing.T) {
	var names []string
	for _, d := range Definitions() {
		if slices.Contains(names, d.Name) {
			t.Errorf("%s stands twice in the table", d.Name)
		}
		names = append(names, d.Name)
		for what, text := range map[string]string{"Install": d.Install, "Source": d.Source,
			"Network": d.Network, "Note": d.Note} {
			if text == "" {
				t.Errorf("%s: %s is empty", d.Name, what)
			}
		}
		line := strings.Join(d.Argv, " ")
		for _, mark := range regexp.MustCompile(`{[^}]*}`).FindAllString(line, -1) {
			if !slices.Contains([]string{"{}", "{home}", "{uid}", "{gid}", "{config}"}, mark) {
				t.Errorf("%s: nothing stands for %s", d.Name, mark)
			}
		}
		if has := strings.Contains(line, "{config}"); has != (d.Config != "") {
			t.Errorf("%s: {config} in Argv: %t, and Config is %q", d.Name, has, d.Config)
		}
		if d.Config != "" && !json.Valid([]byte(d.Config)) {
			t.Errorf("%s: the configuration is no JSON", d.Name)
		}
	}
	if names[0] != "env" {
		t.Errorf("the first definition is %s, want env", names[0])
	}
}

func TestDefinitionJail(t *testing.T) {
	d := Definition{Name: "box", Argv: []string{"box", "--uid={uid}:{gid}", "{home}", "{}",
		"--conf={config}"}, Config: "text", Root: true}
	u := ourselves(t)
	u.UID, u.GID, u.Home = os.Getuid(), os.Getgid(), "/home/me"
	jail, done, err := d.Jail(u)
	if err != nil {
		t.Fatal(err)
	}
	if jail.AsUser {
		t.Error("a jail that only root can start is started as the user")
	}
	file := strings.TrimPrefix(jail.Argv[4], "--conf=")
	if text, err := os.ReadFile(file); err != nil || string(text) != d.Config {
		t.Errorf("the configuration file holds %q (%v), want %q", text, err, d.Config)
	}
	ids := filepath.Base(jail.Argv[1])
	want := []string{"box", ids, "/home/me", "{}", "--conf=" + file}
	if diff := cmp.Diff(want, jail.Argv); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if !regexp.MustCompile(`^--uid=\d+:\d+$`).MatchString(ids) {
		t.Errorf("the ids are %q, want numbers", ids)
	}
	done()
	if _, err := os.Stat(filepath.Dir(file)); err == nil {
		t.Errorf("%s is still there", filepath.Dir(file))
	}
}

// TestNotInstalled checks that a sandbox which is not here says what to do.
func TestNotInstalled(t *testing.T) {
	how := "apt-get install box"
	tests := []struct {
		name string
		d    Definition
		want string // empty: it is here
	}{
		{"here", Definition{Argv: []string{"env"}, Version: []string{"true"}}, ""},
		{"program", Definition{Argv: []string{"no-such-box"}}, how},
		{"needs", Definition{Argv: []string{"env"}, Needs: []string{"no-such-box"}}, how},
		{"version", Definition{Argv: []string{"env"}, Version: []string{"false"}}, how},
		{"ready", Definition{Argv: []string{"env"}, ready: func() error { return os.ErrInvalid }},
			os.ErrInvalid.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.d.Name, tt.d.Install = "box", how
			_, err := tt.d.Find(t.Context())
			if tt.want == "" && err != nil {
				t.Errorf("Find = %v, want nothing", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Find = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestUnfitSandbox checks that a sandbox which starts but does not let its command
// work is an error, and not one that denies everything.
func TestUnfitSandbox(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip(err)
	}
	if restrictsUserNamespaces() {
		t.Skip("kernel.apparmor_restrict_unprivileged_userns is set")
	}
	tests := []struct{ name, command, want string }{
		{"read_only", "bwrap --ro-bind / / --dev /dev --", "does not let the attacker work"},
		{"no_programs", "bwrap --bind {} {} --dev /dev --", "does not let the attacker work"},
		{"no_project", "bwrap --ro-bind /usr /usr --", "no attacker came up inside"},
		{"unknown_option", "bwrap --no-such-option --", "Unknown option"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			jail, err := ParseJail(tt.command)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Run(t.Context(), Options{Jail: jail, User: victimOf(t), Cases: Cases()[:1]})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run against %q = %v, want an error with %q", tt.command, err, tt.want)
			}
		})
	}
}
