package vmtest

import (
	"bytes"
	"io"
	"os"
	"testing"
)

func TestNothingFollowsTheEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &channel{port: w}
	c.send(frameBeat, struct{}{})
	c.send(frameEnd, endPayload{Nonce: "n"})
	c.send(frameBeat, struct{}{}) // it was about to be sent
	w.Close()
	data, err := io.ReadAll(r)
	if err != nil || c.err != nil {
		t.Fatal(err, c.err)
	}
	if n := bytes.Count(data, []byte("\n")); n != 2 {
		t.Errorf("%d frames were sent, want 2:\n%s", n, data)
	}
}
