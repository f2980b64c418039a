package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/agent-lock/agent-lock/report"
)

// Options say what is attacked and how.
type Options struct {
	Jail  Jail
	User  User   // whose files are at stake; see InvokingUser
	Arena string // directory of the user's to attack in; empty: User.Home
	Cases []Case // see Select
	// Program is the executable that has the attacker's verb; it is copied into
	// the project. Empty: this program.
	Program string
	// Limit is how long one attack may take. Zero: 20 seconds, since emulated
	// machines are slow.
	Limit time.Duration
	// Progress, if not nil, is called with each result as it is there.
	Progress func(report.Result)
}

const (
	// maxStarts bounds how often a session is started anew after it died.
	maxStarts = 10
	// maxTries is how often an attack is made that meets no error and has no effect: it
	// may have lost a race.
	maxTries = 3
)

// Labels of the two sessions, with which the names of their directories begin.
const (
	controlLabel = "c"
	jailLabel    = "j"
)

// runner is the state of one run. The controls run ahead of the jailed attacks,
// at the same time: the two share nothing but the arena.
type runner struct {
	opt    Options
	arena  *arena
	free   *session // unjailed
	jailed *session
	lower  func() // limits that were raised; nil: none
}

// noJail is what the controls run in: the attacker itself is the command.
var noJail = Jail{Name: "control", AsUser: true}

// Run attacks the jail with every case and returns one result each, in order.
// An error means that the suite could not run; the results so far come with it.
// Everything that Run made is gone when it returns.
func Run(ctx context.Context, opt Options) ([]report.Result, error) {
	if len(opt.Cases) == 0 {
		return nil, errors.New("no case is selected")
	}
	if opt.Program == "" {
		program, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find our own program: %w", err)
		}
		opt.Program = program
	}
	if opt.Limit == 0 {
		opt.Limit = 20 * time.Second
	}
	r := &runner{opt: opt}
	defer r.close()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	controls := r.runControls(ctx)
	defer func() {
		for range controls { // until it is closed
		}
	}()
	results := r.expected()
	for i, c := range opt.Cases {
		control, ok := <-controls
		if ctx.Err() != nil || !ok {
			return results, fmt.Errorf("stop before case %s: %w", c.Name, context.Cause(ctx))
		}
		r.run(ctx, c, control, &results[i])
		if opt.Progress != nil {
			opt.Progress(results[i])
		}
	}
	return results, nil
}

// expected returns the results with which a run starts: all broken.
func (r *runner) expected() []report.Result {
	var results []report.Result
	for _, c := range r.opt.Cases {
		results = append(results, report.Result{Kind: report.Case, Name: c.Name, Family: c.Family,
			Jail: r.opt.Jail.Name, Layer: r.opt.Jail.Layer, User: r.opt.User.Name,
			Outcome: report.Broken, Detail: "not run"})
	}
	return results
}

// runControls makes every attack without a jail and closes the channel after the
// last, or when the context is done. It is at most a few ahead: what a control shows
// holds for the same second.
func (r *runner) runControls(ctx context.Context) <-chan finding {
	findings := make(chan finding, 4)
	go func() {
		defer close(findings)
		for _, c := range r.opt.Cases {
			if ctx.Err() != nil {
				return
			}
			findings <- r.control(ctx, c)
		}
	}()
	return findings
}

// A finding is what a control came to: OK if it leaked, as it must; Skipped if
// this machine does not let it; Broken if the attack itself is at fault.
type finding struct {
	outcome report.Outcome
	reason  string
}

// open makes the arena, starts both sessions and checks that the jail lets its
// command work.
func (r *runner) open(ctx context.Context) error {
	var err error
	if r.arena, err = newArena(r.opt.User, r.opt.Program, r.opt.Arena); err != nil {
		return err
	}
	if err = r.arena.plantCrowd(r.opt.Cases); err != nil {
		return fmt.Errorf("fill the project: %w", err)
	}
	if r.lower, err = raiseLimits(r.opt.Cases); err != nil {
		return fmt.Errorf("raise the limits of processes: %w", err)
	}
	if r.free, err = r.start(ctx, noJail, controlLabel, nil); err != nil {
		return err
	}
	r.jailed, err = r.start(ctx, r.opt.Jail, jailLabel, nil)
	return err
}

// start starts a session and checks that the attacker can work in it; before is one that
// has died.
func (r *runner) start(ctx context.Context, j Jail, label string, before *session) (*session,
	error) {
	starts := 1
	if before != nil {
		before.starts++ // also when it does not start
		if starts = before.starts; starts > maxStarts {
			return before, fmt.Errorf("%s died %d times", j.Name, maxStarts)
		}
	}
	s, err := startSession(ctx, r.arena, j, label, r.opt.Limit)
	if err != nil {
		return before, fmt.Errorf("start %s: %w", j.Name, err)
	}
	s.starts = starts
	if err := r.check(s); err != nil {
		return s, s.end(fmt.Errorf("%s does not let the attacker work in the project: %w",
			j.Name, err))
	}
	if s.log != nil { // what the jail recorded up to here belongs to no case
		_, err = s.recorded()
	}
	return s, err
}

// check runs the works case, which is not an attack.
func (r *runner) check(s *session) error {
	c := Case{Name: worksCase, Setup: givePrograms}
	return r.attempt(c, s, func(_ *Scene, rep *reply) error {
		if rep.Err != "" {
			return errors.New(rep.Err)
		}
		return nil
	})
}

// givePrograms tells the attacker of a directory that any command must see.
func givePrograms(s *Scene) error {
	for _, dir := range []string{"/usr/bin", "/bin"} {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			s.Arg("programs", dir)
			return nil
		}
	}
	return errors.New("neither /usr/bin nor /bin holds anything")
}

// attempt sets a scene, lets the attacker of the session act in it and hands
// the outcome to judge, all as the user.
func (r *runner) attempt(c Case, s *session, judge func(*Scene, *reply) error) error {
	if err := s.renewVictim(r.arena); err != nil {
		return err
	}
	var sc *Scene
	defer func() {
		if sc != nil {
			sc.close()
		}
	}()
	err := r.arena.user.do(func() error {
		var err error
		sc, err = newScene(r.arena, s, c)
		if err == nil && c.Setup != nil {
			err = c.Setup(sc)
		}
		sc.before = snapshot(sc.roots)
		return err
	})
	if err != nil {
		return &setupError{err}
	}
	rep, err := s.call(&sc.Target, sc.pass, func(pid int) error {
		if c.Meanwhile == nil {
			return nil
		}
		return r.arena.user.do(func() error { return c.Meanwhile(sc, pid) })
	})
	if err != nil {
		return err
	}
	if rep.Unmade != "" {
		if rep.Lost {
			return s.end(errors.New(rep.Unmade)) // with all that the attack may have left
		}
		return errors.New(rep.Unmade)
	}
	sc.Loot, sc.refused = rep.Loot, rep.Err != ""
	return r.arena.user.do(func() error { return judge(sc, rep) })
}

// A setupError says that the outside could not be prepared.
type setupError struct{ err error }

func (e *setupError) Error() string { return e.err.Error() }
func (e *setupError) Unwrap() error { return e.err }

// run runs one case in the jail, if its control was right, and fills in its result.
func (r *runner) run(ctx context.Context, c Case, control finding, res *report.Result) {
	if control.outcome != report.OK {
		res.Outcome, res.Detail = control.outcome, control.reason
		return
	}
	var err error
	if r.jailed.dead != nil {
		if r.jailed, err = r.start(ctx, r.opt.Jail, jailLabel, r.jailed); err != nil {
			res.Detail = err.Error()
			return
		}
	}
	for tries := 1; ; tries++ {
		err = r.attempt(c, r.jailed, func(sc *Scene, rep *reply) error {
			r.verdict(c, sc, rep, res)
			return nil
		})
		if err != nil || tries == maxTries || res.Outcome != report.Denied || res.Errno != "" {
			break
		}
	}
	if r.jailed.log != nil && r.jailed.dead == nil {
		err = errors.Join(err, r.score(res))
	}
	if err != nil {
		res.Outcome, res.Detail = report.Broken, err.Error()
	}
}

// score notes whether the jail has recorded what it refused. An attack that met no error
// was not refused anything: what it wanted was not there.
func (r *runner) score(res *report.Result) error {
	recorded, err := r.jailed.recorded()
	switch {
	case err != nil:
		return err
	case res.Outcome != report.Denied:
	case recorded:
		res.Record = report.Recorded
	case res.Errno != "" && !(r.opt.Jail.Absent && res.Errno == "ENOENT"):
		res.Record = report.Unrecorded
	}
	return nil
}

// control makes the attack without a jail.
func (r *runner) control(ctx context.Context, c Case) finding {
	if reason := r.opt.User.cannot(c); reason != "" {
		return finding{report.Skipped, reason}
	}
	var err error
	if r.free.dead != nil {
		if r.free, err = r.start(ctx, noJail, controlLabel, r.free); err != nil {
			return finding{report.Broken, "control: " + err.Error()}
		}
	}
	f := finding{outcome: report.OK}
	err = r.attempt(c, r.free, func(sc *Scene, rep *reply) error {
		switch {
		case c.Judge.find(sc) != "":
		case rep.Err != "":
			f = finding{report.Skipped, "control: " + rep.Err}
		default:
			f = finding{report.Broken, "control: no error and no effect outside"}
		}
		return nil
	})
	var setup *setupError
	if errors.As(err, &setup) {
		return finding{report.Skipped, "setup: " + err.Error()}
	}
	if err != nil {
		return finding{report.Broken, "control: " + err.Error()}
	}
	return f
}

// verdict decides on what the jailed attack did.
func (r *runner) verdict(c Case, sc *Scene, rep *reply, res *report.Result) {
	res.Errno, res.Millis = rep.Errno, rep.Millis
	proof := c.Judge.find(sc)
	reason, known := r.opt.Jail.Known[c.Name]
	switch {
	case proof != "" && known:
		res.Outcome, res.Detail = report.Known, reason
	case proof != "":
		res.Outcome, res.Detail = report.Leaked, proof
	case rep.Skip != "":
		res.Outcome, res.Detail = report.Skipped, rep.Skip
	default:
		res.Outcome, res.Detail = report.Denied, rep.Err
		if rep.Err == "" {
			res.Detail = "no effect outside"
		}
	}
}

// close ends and removes everything.
func (r *runner) close() {
	for _, s := range slices.DeleteFunc([]*session{r.jailed, r.free}, func(s *session) bool {
		return s == nil
	}) {
		s.close()
	}
	if r.lower != nil {
		r.lower()
	}
	if r.arena != nil {
		r.arena.sweep()
		r.arena.remove()
	}
}
