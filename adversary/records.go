package adversary

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A denialLog is the file, one denial a line, in which a jail says what it refused. The
// attacker cannot touch it; the score of what is recorded is the jail's, not the judge's.
type denialLog struct {
	path string
	end  int64  // of what has been read
	part []byte // of a line that is not complete
}

// logHolder is what stands for the path of the log in a jail's command line.
const logHolder = "{log}"

func newDenialLog(a *arena, label string) *denialLog {
	l := &denialLog{path: filepath.Join(a.root, "denials-"+label)}
	if info, err := os.Stat(l.path); err == nil {
		l.end = info.Size() // the jail is started again
	}
	return l
}

// until returns the lines that have come since the last call, up to the first that holds
// the mark. It waits for that one.
func (l *denialLog) until(mark string, limit time.Duration) ([]string, error) {
	var lines []string
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		more, err := l.read()
		if err != nil {
			return lines, fmt.Errorf("read the denial log: %w", err)
		}
		for i, line := range more {
			if bytes.Contains(line, []byte(mark)) {
				l.unread(more[i+1:])
				return lines, nil
			}
			lines = append(lines, string(line))
		}
		if time.Now().After(deadline) {
			return lines, fmt.Errorf("%s is not in the denial log after %v", mark, limit)
		}
	}
}

// read returns the complete lines that have not been read.
func (l *denialLog) read() ([][]byte, error) {
	f, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // nothing has been denied yet
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, l.end, 1<<40))
	if err != nil {
		return nil, err
	}
	l.end += int64(len(data))
	lines := bytes.SplitAfter(append(l.part, data...), []byte("\n"))
	l.part = lines[len(lines)-1]
	return lines[:len(lines)-1], nil
}

// unread puts lines back.
func (l *denialLog) unread(lines [][]byte) {
	l.part = append(bytes.Join(lines, nil), l.part...)
}

// fencePrefix begins the names of fences.
const fencePrefix = "fence-"

// How many fences a session has, how many of them it may use up at a time, and how long
// it waits for the record of one: a jail may drop records when an attack makes more of
// them than it can write. A fence is not used again then, since its record may only be late.
const (
	fenceCount   = 10
	fenceTries   = 3
	fenceTimeout = 5 * time.Second
)

// recorded reports whether the jail has recorded a denial since the last call. The
// attacker makes one more attempt, to write a file that is there for that: records come in
// order, so what is before its own belongs to the case.
func (s *session) recorded() (bool, error) {
	var lines []string
	for try := 1; ; try++ {
		err := s.send(message{Kind: "fence", Target: &Target{Secret: s.fences[0]}})
		if err == nil {
			_, _, err = s.receive(replyTimeout)
		}
		if err != nil {
			return false, s.end(fmt.Errorf("ask the attacker inside: %w", err))
		}
		more, err := s.log.until(s.fences[0], fenceTimeout)
		lines = append(lines, more...)
		if err == nil {
			break
		}
		if try == fenceTries || len(s.fences) == 1 {
			return false, s.end(fmt.Errorf("the jail does not record, with its path, that a "+
				"file outside was not opened: %w", err))
		}
		s.fences = s.fences[1:]
	}
	return slices.ContainsFunc(lines, func(line string) bool {
		return !strings.Contains(line, fencePrefix)
	}), nil
}
