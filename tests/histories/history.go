package main

import (
	"hash/crc32"
	"sync"
	"time"
)

// kind is what a client asks for.
type kind string

const (
	read      kind = "read"
	set       kind = "set"
	insert    kind = "insert"
	replace   kind = "replace"
	remove    kind = "remove"
	increment kind = "increment"
)

// outcome is what a client knows of an operation.
type outcome string

const (
	done outcome = "done"
	// The condition did not hold: another version, a document that exists, or one that does not.
	mismatch outcome = "mismatch"
	exists   outcome = "exists"
	missing  outcome = "missing"
	// It may have happened, or happen at any later time.
	unknown outcome = "unknown"
	// It did not happen, and says nothing.
	rejected outcome = "rejected"
)

// operation is one call of a client. Values name versions: no two writes have the same one, except
// in counters. 0 is no document.
type operation struct {
	Client  string  `json:"client"`
	Kind    kind    `json:"kind"`
	Level   string  `json:"level,omitempty"`
	Value   int64   `json:"value"`
	Expect  int64   `json:"expect,omitempty"`
	Call    int64   `json:"call"`
	Return  int64   `json:"return"`
	Outcome outcome `json:"outcome"`
	Cas     uint64  `json:"cas,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// history is everything that happened to one key.
type history struct {
	Bucket     string      `json:"bucket"`
	Key        string      `json:"key"`
	IsCounter  bool        `json:"is_counter"`
	Operations []operation `json:"operations"`

	lock     sync.Mutex
	unknowns int
	isDirty  bool
}

const (
	// Each one doubles what has to be tried, so a key with so many is given up for another one.
	unknownsMax   = 6
	operationsMax = 1500
)

func (h *history) add(o operation) {
	if o.Outcome == rejected || (o.Kind == read && o.Outcome == unknown) {
		return
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	if o.Outcome == unknown {
		h.unknowns++
	}
	h.Operations, h.isDirty = append(h.Operations, o), true
}

func (h *history) isFull() bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.unknowns >= unknownsMax || len(h.Operations) >= operationsMax
}

func (h *history) replaceAll(operations []operation) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.Operations = operations
}

func (h *history) copied() []operation {
	h.lock.Lock()
	defer h.lock.Unlock()
	return append([]operation(nil), h.Operations...)
}

var began = time.Now()

// now is monotonic.
func now() int64 { return int64(time.Since(began)) }

func vbucketOf(key string) uint16 {
	return uint16((crc32.ChecksumIEEE([]byte(key)) >> 16 & 0x7fff) % vbuckets)
}
