package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sarifShapes is what SARIF 2.1.0 says of the objects that we write: each property with its
// type. One that must be there has a mark. A type is the name of an object here, a list of
// words, or string, bool, index (of a list; minus one is none) or map (of strings).
var sarifShapes = map[string]map[string]string{
	"log":       {"$schema": "string", "version!": "2.1.0", "runs!": "[]run"},
	"run":       {"tool!": "tool", "invocations": "[]invocation", "results": "[]result"},
	"tool":      {"driver!": "component"},
	"component": {"name!": "string", "version": "string", "rules": "[]rule"},
	"rule": {"id!": "string", "shortDescription": "text", "help": "text",
		"properties": "bag"},
	"bag":        {"tags": "[]string"},
	"text":       {"text!": "string"},
	"message":    {"text": "string"},
	"invocation": {"executionSuccessful!": "bool", "toolExecutionNotifications": "[]notification"},
	"notification": {"message!": "message", "level": "none note warning error",
		"associatedRule": "reference", "locations": "[]location"},
	"reference": {"id": "string", "index": "index"},
	"result": {"message!": "message", "ruleId": "string", "ruleIndex": "index",
		"kind":  "notApplicable pass fail review open informational",
		"level": "none note warning error", "locations": "[]location",
		"partialFingerprints": "map"},
	"location": {"logicalLocations": "[]logical"},
	"logical":  {"name": "string", "fullyQualifiedName": "string"},
}

// misshapen lists where a JSON value is not of a type.
func misshapen(path, kind string, value any) []string {
	shape, isObject := sarifShapes[kind]
	element, isList := strings.CutPrefix(kind, "[]")
	ok := false
	switch v := value.(type) {
	case []any:
		if isList {
			return inList(path, element, v)
		}
	case map[string]any:
		if isObject {
			return inObject(path, shape, v)
		}
		ok = kind == "map"
		for _, text := range v {
			_, isText := text.(string)
			ok = ok && isText
		}
	case bool:
		ok = kind == "bool"
	case float64:
		ok = kind == "index" && v == math.Trunc(v) && v >= -1
	case string:
		ok = kind == "string" || !isObject && slices.Contains(strings.Fields(kind), v)
	}
	if ok {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v is not %s", path, value, kind)}
}

func inList(path, kind string, list []any) []string {
	var problems []string
	for i, value := range list {
		problems = append(problems, misshapen(fmt.Sprintf("%s[%d]", path, i), kind, value)...)
	}
	return problems
}

func inObject(path string, shape map[string]string, object map[string]any) []string {
	var problems []string
	for key, kind := range shape {
		name, must := strings.CutSuffix(key, "!")
		value, ok := object[name]
		if ok {
			problems = append(problems, misshapen(path+"."+name, kind, value)...)
		} else if must {
			problems = append(problems, path+": no "+name)
		}
	}
	for name := range object {
		if shape[name] == "" && shape[name+"!"] == "" {
			problems = append(problems, path+": unknown "+name)
		}
	}
	return problems
}

// checkSARIF checks a log: its shape, and that what refers to a rule refers to the right one.
func checkSARIF(t *testing.T, text []byte) sarifLog {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, p := range misshapen("log", "log", value) {
		t.Error(p)
	}
	var log sarifLog
	if err := json.Unmarshal(text, &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	refer := func(id string, index int) {
		if rules := run.Tool.Driver.Rules; index < 0 || index >= len(rules) ||
			rules[index].ID != id {
			t.Errorf("rule %q is not number %d of %+v", id, index, rules)
		}
	}
	for _, r := range run.Results {
		refer(r.RuleID, r.RuleIndex)
	}
	for _, n := range run.Invocations[0].Notifications {
		refer(n.Rule.ID, n.Rule.Index)
	}
	return log
}

func TestSARIFShape(t *testing.T) {
	for _, results := range [][]Result{nil, oneJail(), threeJails()} {
		var log bytes.Buffer
		if err := WriteSARIF(&log, "", rules, results); err != nil {
			t.Fatal(err)
		}
		checkSARIF(t, log.Bytes())
	}
}

// TestMisshapen checks that the check of shapes can fail.
func TestMisshapen(t *testing.T) {
	var log any
	text := `{"version": "2.2", "extra": 1, "runs": [{"tool": {"driver": {"rules": {}}},
		"results": [{"message": {"text": 1}, "ruleIndex": 0.5, "level": "severe",
			"partialFingerprints": {"a": 1}, "locations": [{"logicalLocations": ["x"]}]}]}]}`
	if err := json.Unmarshal([]byte(text), &log); err != nil {
		t.Fatal(err)
	}
	got := misshapen("log", "log", log)
	slices.Sort(got)
	want := []string{
		"log.runs[0].results[0].level: severe is not none note warning error",
		"log.runs[0].results[0].locations[0].logicalLocations[0]: x is not logical",
		"log.runs[0].results[0].message.text: 1 is not string",
		"log.runs[0].results[0].partialFingerprints: map[a:1] is not map",
		"log.runs[0].results[0].ruleIndex: 0.5 is not index",
		"log.runs[0].tool.driver.rules: map[] is not []rule",
		"log.runs[0].tool.driver: no name",
		"log.version: 2.2 is not 2.1.0",
		"log: unknown extra",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("misshapen(log) (-want +got):\n%s", diff)
	}
}

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	messageLink = regexp.MustCompile(`(^|[^\\])(\\\\)*\[`)
)

func FuzzSARIF(f *testing.F) {
	fuzzForms(f, ".sarif", func(t *testing.T, got, _ []byte, _ []Result) {
		for _, r := range checkSARIF(t, got).Runs[0].Results {
			text := strings.NewReplacer("{{", "", "}}", "").Replace(r.Message.Text)
			if placeholder.MatchString(text) || messageLink.MatchString(text) {
				t.Errorf("message %q has a placeholder or a link", r.Message.Text)
			}
			printable(t, r.Message.Text)
		}
	})
}
