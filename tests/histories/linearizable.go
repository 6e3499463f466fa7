package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// The register and the counter that histories are compared with. The state is the value, 0 without
// a document.

// step returns the state after an operation, and whether that could have its outcome.
func step(state int64, o operation) (bool, int64) {
	holds, next := effect(state, o)
	switch o.Outcome {
	case done:
		return holds, next
	case mismatch:
		return state != o.Expect && state != 0, state
	case exists:
		return state != 0, state
	case missing:
		return state == 0, state
	case unknown:
		if holds {
			return true, next
		}
		return true, state
	}
	return false, state
}

// effect says whether the operation's condition holds, and what is then the state.
func effect(state int64, o operation) (bool, int64) {
	switch o.Kind {
	case read:
		return state == o.Value, state
	case set:
		return true, o.Value
	case insert:
		return state == 0, o.Value
	case replace:
		return state == o.Expect && state != 0, o.Value
	case remove:
		return state != 0, 0
	case increment:
		return o.Outcome == unknown || o.Value == state+1, state + 1
	}
	return false, state
}

var model = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		holds, next := step(state.(int64), input.(operation))
		return holds, next
	},
	DescribeOperation: func(input, _ any) string {
		o := input.(operation)
		text := fmt.Sprintf("%s %d", o.Kind, o.Value)
		if o.Kind == replace {
			text = fmt.Sprintf("replace %d by %d", o.Expect, o.Value)
		}
		return fmt.Sprintf("%s: %s (%s %s)", text, o.Outcome, o.Client, o.Level)
	},
	DescribeState: func(state any) string { return fmt.Sprint(state) },
}

// verdict of one history.
type verdict int

const (
	linearizable verdict = iota
	violated
	undecided
)

// check compares a history with the model. `page` gets the visualisation of one that is not
// linearizable.
func check(operations []operation, limit time.Duration, page string) verdict {
	clients := map[string]int{}
	var all []porcupine.Operation
	for _, o := range operations {
		client, isKnown := clients[o.Client]
		if !isKnown {
			client = len(clients)
			clients[o.Client] = client
		}
		end := o.Return
		if o.Outcome == unknown {
			end = math.MaxInt64
		}
		all = append(all, porcupine.Operation{ClientId: client, Input: o, Call: o.Call, Return: end})
	}
	switch porcupine.CheckOperationsTimeout(model, all, limit) {
	case porcupine.Ok:
		return linearizable
	case porcupine.Unknown:
		return undecided
	}
	if page != "" {
		visualize(all, limit, page)
	}
	return violated
}

func visualize(all []porcupine.Operation, limit time.Duration, page string) {
	_, information := porcupine.CheckOperationsVerbose(model, all, limit)
	file, err := os.Create(page)
	if err == nil {
		err = porcupine.Visualize(model, information, file)
		_ = file.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s cannot be written: %v\n", page, err)
	}
}

// casConflict is a value that clients saw with two CAS values: it was written once, so it has one.
func casConflict(operations []operation) string {
	seen := map[int64]uint64{}
	for _, o := range operations {
		if o.Outcome != done || o.Cas == 0 || o.Value == 0 || o.Kind == remove {
			continue
		}
		if cas, isSeen := seen[o.Value]; isSeen && cas != o.Cas {
			return fmt.Sprintf("value %d was seen with CAS %#x and %#x", o.Value, cas, o.Cas)
		}
		seen[o.Value] = o.Cas
	}
	return ""
}
