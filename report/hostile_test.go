package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	markdownhtml "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"
)

// hostile are texts that mean something to one of the readers.
var hostile = []string{
	"\x1b[2J\x1b]0;title\x07\x9b31m\x08\r\x00\x7f",
	"| a | b |\n|---|---|\n\\| \\\\| ` `` ``` | ~~~ |",
	"]]><script>alert(1)</script><![CDATA[ <!-- --> --> </td></table></details> &lt;&#x3c;",
	"`<img src=x onerror=alert(1)>` <b>**bold** _it_ ~~del~~ __x__ \"' onload=\"x",
	"[a](http://example.com) ![i](x) <http://example.com> www.example.com a@example.com @b #1",
	"{0} {{ }} [link](1) \\[x\\](y) \\\\[x\\\\](y) {name}",
	"\u202edrowssap\u200b\u2066\ufeff\ufffe\uffff\U000e0001 \xff\xfe\xc0\x80 \ufffd",
	"::error::x\n##[error]x\n# heading\n- item\n1. x\n> quote\n    code\n\t\t\n\n---\n===",
	"</code></summary><details open><style>*{display:none}</style>{{.}}{{template \"x\"}}",
	" ", "\n", "-", "_", "a_", "_a", "ä_b_ö", strings.Repeat("long ", 200),
}

// hostileRun has one text wherever something from outside can be, in two columns.
func hostileRun(name, errno, detail, jail string) []Result {
	r := Result{Kind: Case, Name: name, Family: "f" + name, Jail: jail, User: "u" + jail,
		Errno: errno, Detail: detail, Millis: 1}
	var all []Result
	for _, o := range []Outcome{Leaked, Denied, Broken, Known, Skipped, Unsupported, Failed} {
		r.Outcome = o
		all = append(all, r)
		r.Jail, r.Name = "another jail", r.Name+"x"
	}
	return all
}

// harmless replaces a text by one that means nothing; white space means nothing already.
func harmless(s, by string) string {
	if strings.TrimSpace(s) == "" {
		return s
	}
	return by
}

// fuzzForms calls check with what a form makes of hostile results, and of harmless ones.
func fuzzForms(f *testing.F, suffix string, check func(t *testing.T, got, plain []byte,
	results []Result)) {
	for _, text := range hostile {
		f.Add(text, text, text, text)
		f.Add(text, "", "", "jail")
		f.Add("case", "EACCES", text, "")
	}
	f.Fuzz(func(t *testing.T, name, errno, detail, jail string) {
		results := hostileRun(name, errno, detail, jail)
		tame := hostileRun(harmless(name, "n"), harmless(errno, "E"), harmless(detail, "d"),
			harmless(jail, "j"))
		for _, form := range forms {
			if !strings.HasSuffix(form.name, suffix) {
				continue
			}
			var got, plain bytes.Buffer
			if err := errors.Join(form.write(&got, results), form.write(&plain, tame)); err != nil {
				t.Fatalf("%s of %+v: %v", form.name, results, err)
			}
			check(t, got.Bytes(), plain.Bytes(), results)
		}
	})
}

// printable fails if a terminal would act on a text, or not show it.
func printable(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%q has %U", text, r)
		}
	}
}

func FuzzTerminal(f *testing.F) {
	fuzzForms(f, ".txt", func(t *testing.T, got, plain []byte, results []Result) {
		printable(t, string(got))
		if g, w := bytes.Count(got, []byte("\n")), bytes.Count(plain, []byte("\n")); g != w {
			t.Errorf("%q has %d lines, want the %d of %q", got, g, w, plain)
		}
		var b bytes.Buffer
		for _, r := range results {
			if err := WriteLine(&b, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := Compare(results[:4], results[2:]).Write(&b); err != nil {
			t.Fatal(err)
		}
		printable(t, b.String())
	})
}

// elements lists the elements and attributes of a page, and fails if one of them could do
// or load something.
func elements(t *testing.T, page []byte) []string {
	t.Helper()
	active := []string{"script", "img", "a", "iframe", "object", "embed", "link", "form", "input",
		"svg", "math", "base", "video", "audio", "del", "em"}
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for n := range root.Descendants() {
		if n.Type == html.CommentNode {
			t.Errorf("%q has a comment %q", page, n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		words := []string{n.Data}
		for _, a := range n.Attr {
			words = append(words, a.Key)
			if strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "href" {
				t.Errorf("%q has the attribute %s", page, a.Key)
			}
		}
		if slices.Contains(active, n.Data) {
			t.Errorf("%q has the element %s", page, n.Data)
		}
		found = append(found, strings.Join(words, " "))
	}
	return found
}

func FuzzHTML(f *testing.F) {
	fuzzForms(f, ".html", func(t *testing.T, got, plain []byte, _ []Result) {
		if diff := cmp.Diff(elements(t, plain), elements(t, got)); diff != "" {
			t.Errorf("hostile text changes the elements of the page (-want +got):\n%s", diff)
		}
		printable(t, string(got))
	})
}

// rendered is Markdown as HTML, with whatever HTML is in it.
func rendered(t *testing.T, markdown []byte) []byte {
	t.Helper()
	md := goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithRendererOptions(markdownhtml.WithUnsafe()))
	var b bytes.Buffer
	if err := md.Convert(markdown, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func FuzzMarkdown(f *testing.F) {
	fuzzForms(f, ".md", func(t *testing.T, got, plain []byte, results []Result) {
		page := rendered(t, got)
		if diff := cmp.Diff(elements(t, rendered(t, plain)), elements(t, page)); diff != "" {
			t.Errorf("hostile text changes the elements of %q (-want +got):\n%s", got, diff)
		}
		printable(t, string(got))
		root, err := html.Parse(bytes.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		// Escaping must not lose or change the text either.
		text := ""
		for n := range root.Descendants() {
			if n.Type == html.TextNode {
				text += n.Data
			}
		}
		if name := visible(results[0].Name); !strings.Contains(text, strings.TrimSpace(name)) {
			t.Errorf("the text %q does not have the name %q", text, name)
		}
	})
}

func FuzzJUnit(f *testing.F) {
	fuzzForms(f, ".xml", func(t *testing.T, got, _ []byte, results []Result) {
		var run junitRun
		if err := xml.Unmarshal(got, &run); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		names := map[string]int{}
		for _, suite := range run.Suites {
			for _, c := range suite.Cases {
				names[c.Name]++
			}
		}
		want := map[string]int{}
		for _, r := range results {
			want[visible(r.Name)]++
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("the names of the cases (-want +got):\n%s", diff)
		}
		printable(t, string(got))
		d := xml.NewDecoder(bytes.NewReader(got))
		for {
			token, err := d.Token()
			if err == io.EOF {
				return
			}
			switch token := token.(type) {
			case xml.Comment, xml.Directive:
				t.Fatalf("%q has %v", got, token)
			case xml.StartElement:
				if !slices.Contains([]string{"testsuites", "testsuite", "testcase", "failure",
					"error", "skipped", "system-out"}, token.Name.Local) {
					t.Fatalf("%q has the element %s", got, token.Name.Local)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä 中 |<>": "plain ä 中 |<>",
		"a\nb\tc\r":     `a\nb\tc\r`,
		"\x1b[1m\x00":   `\x1b[1m\x00`,
		"\u202e\u00a0":  `\u202e\u00a0`,
		"\xff\ufffd":    `\xff` + "\ufffd",
		"\U000e0001":    `\U000e0001`,
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}

// A command of GitHub's is a line: whatever a result holds, it makes one of its own.
func TestAnnotationsOfHostileResults(t *testing.T) {
	for _, text := range hostile {
		var got, plain bytes.Buffer
		for w, s := range map[*bytes.Buffer]string{&got: text, &plain: harmless(text, "word")} {
			if err := WriteAnnotations(w, hostileRun(s, s, s, s)); err != nil {
				t.Fatal(err)
			}
		}
		lines := func(b bytes.Buffer) []string { return strings.Split(b.String(), "\n") }
		if len(lines(got)) != len(lines(plain)) {
			t.Errorf("%q makes %d lines, want %d", text, len(lines(got)), len(lines(plain)))
		}
		for _, line := range lines(got)[:len(lines(got))-1] {
			title, ok := strings.CutPrefix(line, "::error title=")
			if title, _, closed := strings.Cut(title, "::"); ok && (!closed ||
				strings.ContainsAny(title, ":,")) {
				t.Errorf("%q makes the title %q", text, title)
			}
			if !ok && !strings.HasPrefix(line, "::notice title=agent-lock::") {
				t.Errorf("%q makes the line %q", text, line)
			}
		}
	}
}
