package vmtest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
)

// The guest's pid 1 speaks to the host in frames, one a line, on a serial port
// that only it holds:
//
//	@AL1 SEQ KIND ENC LEN CRC PAYLOAD\n
//
// What the host says are the lines of messages (message.go).
//
// SEQ counts from 0 without gaps. PAYLOAD is LEN bytes of JSON (ENC "j"), or of
// base64 of gzipped JSON (ENC "z"): a serial port under TCG carries less than
// 300 KB/s. CRC is the CRC-32 of everything between "@AL1 " and itself, and of
// PAYLOAD, so that no field can change unseen.
const frameMark = "@AL1 "

const (
	// packFrom is the size from which a payload is compressed.
	packFrom = 2 << 10
	// maxFrame bounds the line of one frame, and what it may unpack to.
	maxFrame = 8 << 20
	// textChunk is the most output of a step that one frame carries.
	textChunk = 16 << 10
)

// frameKind says what a frame's payload is.
type frameKind string

const (
	frameHello  frameKind = "hello"  // helloPayload: pid 1 is up
	frameBeat   frameKind = "beat"   // nothing: pid 1 is alive
	frameStart  frameKind = "start"  // stepPayload: a step begins
	frameText   frameKind = "text"   // textPayload: output of the step
	frameResult frameKind = "result" // report.Result
	frameExit   frameKind = "exit"   // StepStatus: a step ended
	frameError  frameKind = "error"  // errorPayload: pid 1 could not do its work
	frameEnd    frameKind = "end"    // endPayload: everything was said
)

type helloPayload struct {
	Nonce   string `json:"nonce"`
	Release string `json:"release"` // uname -r
	LSM     string `json:"lsm"`     // active security modules
	BTF     bool   `json:"btf"`     // the kernel describes its types
}

type stepPayload struct {
	Step int `json:"step"`
}

type textPayload struct {
	Step int    `json:"step"`
	Err  bool   `json:"err,omitempty"` // it was printed to standard error
	Data []byte `json:"data"`
}

type errorPayload struct {
	Message string `json:"message"`
}

type endPayload struct {
	Nonce string `json:"nonce"`
	// Taint is /proc/sys/kernel/tainted: a program can keep reports off the console.
	Taint uint64 `json:"taint,omitempty"`
}

// frame is one decoded frame. Payload is JSON.
type frame struct {
	seq     uint64
	kind    frameKind
	payload []byte
}

// decode reads the payload of a frame.
func (f frame) decode(v any) error {
	if err := json.Unmarshal(f.payload, v); err != nil {
		return fmt.Errorf("frame %d (%s): %w", f.seq, f.kind, err)
	}
	return nil
}

// encodeFrame returns the line of one frame.
func encodeFrame(seq uint64, kind frameKind, v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s frame: %w", kind, err)
	}
	enc := "j"
	if len(payload) >= packFrom {
		if packed := pack(payload); len(packed) < len(payload) {
			enc, payload = "z", packed
		}
	}
	head := fmt.Sprintf("%d %s %s %d ", seq, kind, enc, len(payload))
	sum := crc32.Update(crc32.ChecksumIEEE([]byte(head)), crc32.IEEETable, payload)
	line := make([]byte, 0, len(frameMark)+len(head)+len(payload)+10)
	line = append(line, frameMark...)
	line = append(line, head...)
	line = fmt.Appendf(line, "%08x ", sum)
	line = append(line, payload...)
	return append(line, '\n'), nil
}

func pack(payload []byte) []byte {
	var buf bytes.Buffer
	b64 := base64.NewEncoder(base64.StdEncoding, &buf)
	gz, _ := gzip.NewWriterLevel(b64, gzip.BestSpeed) // the level is a valid constant
	gz.Write(payload)                                 // into memory
	gz.Close()
	b64.Close()
	return buf.Bytes()
}

// decodeFrame reads one line, without its newline. Bytes before the mark are a
// damaged stream like any other fault.
func decodeFrame(line []byte) (frame, error) {
	rest, ok := bytes.CutPrefix(line, []byte(frameMark))
	if !ok {
		return frame{}, fmt.Errorf("no frame: %.60q", line)
	}
	fields := bytes.SplitN(rest, []byte(" "), 6)
	if len(fields) != 6 {
		return frame{}, fmt.Errorf("frame has %d fields, want 6", len(fields))
	}
	seq, err := strconv.ParseUint(string(fields[0]), 10, 64)
	if err != nil {
		return frame{}, fmt.Errorf("frame sequence number: %w", err)
	}
	payload := fields[5]
	if n, err := strconv.Atoi(string(fields[3])); err != nil || n != len(payload) {
		return frame{}, fmt.Errorf("frame %d has %d bytes of payload, want %.20q",
			seq, len(payload), fields[3])
	}
	head := rest[:len(rest)-len(payload)-len(fields[4])-1]
	sum := crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, payload)
	if got := fmt.Sprintf("%08x", sum); got != string(fields[4]) {
		return frame{}, fmt.Errorf("frame %d: checksum %s, want %.20q", seq, got, fields[4])
	}
	f := frame{seq: seq, kind: frameKind(fields[1]), payload: payload}
	switch string(fields[2]) {
	case "j":
	case "z":
		if f.payload, err = unpackPayload(payload); err != nil {
			return frame{}, fmt.Errorf("frame %d: %w", seq, err)
		}
	default:
		return frame{}, fmt.Errorf("frame %d has unknown encoding %.20q", seq, fields[2])
	}
	return f, nil
}

func unpackPayload(packed []byte) ([]byte, error) {
	gz, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(packed)))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(gz, maxFrame+1))
	if err != nil {
		return nil, err
	}
	if len(out) > maxFrame {
		return nil, errors.New("payload is too large")
	}
	return out, nil
}

// stream checks the order of a guest's frames: hello first, end last, no gap,
// and this run's nonce in both.
type stream struct {
	nonce string
	next  uint64
	hello bool
	ended bool
}

// accept checks one more line. After an error the stream is not to be trusted.
func (s *stream) accept(line []byte) (frame, error) {
	line = []byte(strings.TrimSuffix(string(line), "\n"))
	f, err := decodeFrame(line)
	if err != nil {
		return f, err
	}
	if f.seq != s.next {
		return f, fmt.Errorf("frame %d follows frame %d", f.seq, int64(s.next)-1)
	}
	s.next++
	if s.ended {
		return f, fmt.Errorf("frame %d (%s) after the end", f.seq, f.kind)
	}
	var said struct {
		Nonce string `json:"nonce"`
	}
	switch {
	case f.kind == frameHello && s.hello:
		return f, errors.New("second hello")
	case f.kind != frameHello && !s.hello:
		return f, fmt.Errorf("%s before hello", f.kind)
	case f.kind == frameHello || f.kind == frameEnd:
		if err := f.decode(&said); err != nil {
			return f, err
		}
		if said.Nonce != s.nonce {
			return f, fmt.Errorf("%s has the nonce of another run", f.kind)
		}
		s.hello = true
		s.ended = f.kind == frameEnd
	}
	return f, nil
}
