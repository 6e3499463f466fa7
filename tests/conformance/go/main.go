// The conformance steps with the Couchbase Go SDK.
//
// Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_CONTROL, ORIBI_STEPS,
// ORIBI_SUB_DOCUMENTS, ORIBI_BUCKET and ORIBI_REPLICAS, and writes BEGIN, PASS and FAIL lines; see
// harness/steps.py. This file owns the order of the steps and the checks;
// the other files own what the steps do.
package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"
)

type step struct {
	name string
	run  func(*program) string
}

var steps = []step{
	{"connect", (*program).connect},
	{"crud", (*program).crud},
	{"not-found", (*program).notFound},
	{"exists", (*program).exists},
	{"cas-mismatch", (*program).casMismatch},
	{"counters", (*program).counters},
	{"append-prepend", (*program).appendPrepend},
	{"expiry", (*program).expiry},
	{"touch", (*program).touch},
	{"get-and-touch", (*program).getAndTouch},
	{"durability", (*program).durability},
	{"observed-durability", (*program).observedDurability},
	{"mutation-tokens", (*program).mutationTokens},
	{"look-up-in", (*program).lookUpIn},
	{"mutate-in", (*program).mutateIn},
	{"macros", (*program).macros},
	{"deleted-documents", (*program).deletedDocuments},
	{"projections", (*program).projections},
	{"preserve-expiry", (*program).preserveExpiry},
	{"replicas", (*program).replicas},
	{"locks", (*program).locks},
	{"compression", (*program).compression},
	{"rights", (*program).rights},
	{"scans", (*program).scans},
	{"collections", (*program).collections},
	{"users", (*program).users},
	{"buckets", (*program).buckets},
	{"document-20-mib", (*program).document20MiB},
	{"too-large", (*program).tooLarge},
	{"wrong-password", (*program).wrongPassword},
	{"parallel-50000", (*program).parallel50000},
	{"kill-restart", (*program).killRestart},
	{"commit", (*program).commit},
	{"roll-back", (*program).rollBack},
	{"conflicts", (*program).conflicts},
	{"staged-reads", (*program).stagedReads},
	{"binary", (*program).binary},
	{"transfers-none", func(p *program) string { return p.transfers(gocb.DurabilityLevelNone) }},
	{"transfers-majority", func(p *program) string { return p.transfers(gocb.DurabilityLevelMajority) }},
	{"transfers-persist", func(p *program) string { return p.transfers(gocb.DurabilityLevelPersistToMajority) }},
	{"transfers-killed", (*program).transfersKilled},
	{"transfers-lost", (*program).transfersLost},
	{"join", func(p *program) string { return p.changeNodes("join") }},
	{"kill", func(p *program) string { return p.changeNodes("kill") }},
	{"new-client", (*program).newClient},
	{"return", func(p *program) string { return p.changeNodes("return") }},
	{"kill-again", func(p *program) string { return p.changeNodes("kill-again") }},
	{"return-again", func(p *program) string { return p.changeNodes("return-again") }},
	{"leave", func(p *program) string { return p.changeNodes("leave") }},
}

func main() {
	p := &program{
		connectionString: os.Getenv("ORIBI_CONNSTR"),
		user:             os.Getenv("ORIBI_USER"),
		password:         os.Getenv("ORIBI_PASSWORD"),
		written:          map[string]string{},
	}
	wanted := strings.Split(os.Getenv("ORIBI_STEPS"), ",")
	for _, s := range steps {
		if !slices.Contains(wanted, s.name) {
			continue
		}
		fmt.Printf("BEGIN %s\n", s.name)
		if detail, failure := attempt(p, s); failure == "" {
			fmt.Printf("PASS %s %s\n", s.name, detail)
		} else {
			fmt.Printf("FAIL %s %s\n", s.name, failure)
			if s.name == "connect" {
				break
			}
		}
	}
	if p.cluster != nil {
		_ = p.cluster.Close(nil)
	}
}

// attempt turns a failed check, which panics, into a message.
func attempt(p *program, s step) (detail, failure string) {
	defer func() {
		if cause := recover(); cause != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", s.name, cause, debug.Stack())
			failure = strings.Join(strings.Fields(fmt.Sprint(cause)), " ")
			if len(failure) > 300 {
				failure = failure[:300]
			}
		}
	}()
	return s.run(p), ""
}

func check(condition bool, what string) {
	if !condition {
		panic("expected: " + what)
	}
}

func equal(actual, expected any) {
	if !reflect.DeepEqual(actual, expected) {
		panic(fmt.Sprintf("expected %.200v, got %.200v", expected, actual))
	}
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

// must returns the result of a call that has to succeed.
func must[T any](result T, err error) T {
	ok(err)
	return result
}

// fails checks that an error is one of the expected ones.
func fails(err error, expected ...error) {
	if !isOneOf(err, expected) {
		panic(fmt.Sprintf("expected %v, got %v", expected, err))
	}
}

func isOneOf(err error, expected []error) bool {
	for _, each := range expected {
		if errors.Is(err, each) {
			return true
		}
	}
	return false
}

// eventually repeats a call until it succeeds, for half a minute, past errors that time heals.
func eventually(transient []error, call func() error) {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := call()
		if err == nil {
			return
		}
		if !isOneOf(err, transient) || time.Now().After(deadline) {
			panic(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// content decodes a document into a fresh T.
func content[T any](result *gocb.GetResult) T {
	var value T
	ok(result.Content(&value))
	return value
}
