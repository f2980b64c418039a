package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A Rule is what a check says about itself, for those who read its result elsewhere.
type Rule struct {
	What   string // what is tried
	Family string
	Source string   // where the attack comes from
	Hooks  []string // what is expected to stop it
}

// The objects of SARIF 2.1.0 that we write.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID         string      `json:"id"`
		Short      sarifText   `json:"shortDescription"`
		Help       *sarifText  `json:"help,omitempty"`
		Properties *sarifProps `json:"properties,omitempty"`
	}
	sarifProps struct {
		Tags []string `json:"tags"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Rule      sarifRuleRef    `json:"associatedRule"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifRuleRef struct {
		ID    string `json:"id"`
		Index int    `json:"index"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Kind         string            `json:"kind"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Logical []sarifLogical `json:"logicalLocations"`
	}
	sarifLogical struct {
		Name      string `json:"name"`
		Qualified string `json:"fullyQualifiedName"`
	}
)

const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/" +
	"sarif-schema-2.1.0.json"

// WriteSARIF writes the leaks among the results as a SARIF 2.1.0 log: a result of level error
// for each, and of level note for a known one. A place is a logical one, in what was attacked.
// Checks that did not work are notifications of the run, which then counts as unsuccessful.
func WriteSARIF(w io.Writer, version string, rules map[string]Rule, results []Result) error {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "agent-lock", Version: version, Rules: []sarifRule{}}
	index := map[string]int{}
	rule := func(r Result) int {
		i, ok := index[r.Name]
		if !ok {
			i = len(run.Tool.Driver.Rules)
			index[r.Name] = i
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, newSARIFRule(r, rules[r.Name]))
		}
		return i
	}
	invocation := sarifInvocation{Successful: true}
	for _, r := range results {
		level := "error"
		switch {
		case r.isBroken():
			invocation.Successful = false
			invocation.Notifications = append(invocation.Notifications, sarifNotification{
				Level: level, Message: sarifMessage(r), Locations: sarifLocations(r),
				Rule: sarifRuleRef{ID: ruleID(r), Index: rule(r)}})
			continue
		case r.Outcome == Known:
			level = "note"
		case !r.Bad():
			continue
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: ruleID(r), RuleIndex: rule(r), Kind: "fail", Level: level,
			Message: sarifMessage(r), Locations: sarifLocations(r),
			Fingerprints: map[string]string{"attack/v1": strings.Join(r.place(), "/")}})
	}
	run.Invocations = []sarifInvocation{invocation}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	log := sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}}
	if err := enc.Encode(log); err != nil {
		return fmt.Errorf("write SARIF: %w", err)
	}
	return nil
}

func ruleID(r Result) string { return cmp.Or(visible(r.Name), string(r.Kind), "unnamed") }

func newSARIFRule(r Result, about Rule) sarifRule {
	rule := sarifRule{ID: ruleID(r), Short: sarifText{literal(cmp.Or(about.What, ruleID(r)))}}
	var help []string
	if about.What != "" {
		help = append(help, "The attacker "+about.What+".")
	}
	if about.Source != "" {
		help = append(help, "Source: "+about.Source+".")
	}
	if len(about.Hooks) > 0 {
		hooks := strings.Join(about.Hooks, ", ")
		help = append(help, "Expected to be stopped by any of: "+hooks+".")
	}
	if len(help) > 0 {
		rule.Help = &sarifText{literal(strings.Join(help, " "))}
	}
	if family := cmp.Or(about.Family, r.Family); family != "" {
		rule.Properties = &sarifProps{Tags: []string{visible(family)}}
	}
	return rule
}

func sarifMessage(r Result) sarifText {
	said := r.said()
	if said == "" {
		return sarifText{literal(r.word())}
	}
	return sarifText{literal(r.word() + ": " + said)}
}

// place is where a check was made, from the widest to the narrowest.
func (r Result) place() []string {
	words := []string{r.Kernel, r.Jail, r.Layer, r.User, r.family(), r.Name}
	for i, word := range words {
		words[i] = strings.ReplaceAll(visible(word), "/", "|")
	}
	return slices.DeleteFunc(words, func(word string) bool { return word == "" })
}

func sarifLocations(r Result) []sarifLocation {
	return []sarifLocation{{Logical: []sarifLogical{
		{Name: ruleID(r), Qualified: strings.Join(r.place(), "/")}}}}
}

// brackets are what begins or ends a link in a message, behind any backslashes.
var brackets = regexp.MustCompile(`\\*[\[\]]`)

// literal is a text as a SARIF message, in which braces enclose placeholders, and brackets
// links.
func literal(s string) string {
	s = strings.NewReplacer("{", "{{", "}", "}}").Replace(visibleLines(s))
	return brackets.ReplaceAllStringFunc(s, func(m string) string {
		slashes, bracket := m[:len(m)-1], m[len(m)-1:]
		return slashes + slashes + `\` + bracket
	})
}
