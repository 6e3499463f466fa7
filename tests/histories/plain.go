package main

import (
	"fmt"
	"sync"
)

// The oracle of plain writes: one writer for each key counts up. A failover may take the end of a
// vbucket's history away; the failover table then says so. What is within a history that continued
// is there, and was never read as something older.

// plainOperation is a write or a read.
type plainOperation struct {
	Client  string `json:"client"`
	IsWrite bool   `json:"is_write"`
	Number  int64  `json:"number"`
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	// Whether the write was acknowledged, and its place in a history.
	IsAcknowledged bool   `json:"is_acknowledged"`
	UUID           uint64 `json:"uuid,omitempty"`
	Seqno          uint64 `json:"seqno,omitempty"`
}

type plainKey struct {
	bucket, key string
	lock        sync.Mutex
	operations  []plainOperation
	// What an earlier round has found on all copies, and when.
	settled   int64
	settledAt int64
	// A write has no answer: it may come at any time, so the key is not written any more.
	isDoubtful bool
}

func (p *plainKey) add(o plainOperation) {
	p.lock.Lock()
	defer p.lock.Unlock()
	// An earlier round would have to check this answer to a reader of one node.
	if !o.IsWrite && o.Call < p.settledAt {
		return
	}
	p.operations = append(p.operations, o)
	p.isDoubtful = p.isDoubtful || (o.IsWrite && !o.IsAcknowledged)
}

func (p *plainKey) copied() []plainOperation {
	p.lock.Lock()
	defer p.lock.Unlock()
	return append([]plainOperation(nil), p.operations...)
}

// settle begins the next round.
func (p *plainKey) settle(final int64) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.operations, p.settled, p.settledAt = nil, final, now()
}

// historyEntry is one of a failover table, the newest first.
type historyEntry struct{ UUID, Seqno uint64 }

// continues says whether the table's present history has a write.
func continues(table []historyEntry, uuid, seqno uint64) bool {
	for index, entry := range table {
		if entry.UUID == uuid {
			return index == 0 || seqno <= table[index-1].Seqno
		}
	}
	return false
}

// checkPlain returns the first thing that is wrong, or nothing. `final` was read at the end.
func checkPlain(operations []plainOperation, table []historyEntry, settled, final int64) string {
	survived, written := map[int64]bool{settled: true}, map[int64]plainOperation{settled: {IsAcknowledged: true}}
	newest := settled
	for _, o := range operations {
		if !o.IsWrite {
			continue
		}
		written[o.Number] = o
		if o.IsAcknowledged && continues(table, o.UUID, o.Seqno) {
			survived[o.Number] = true
			newest = max(newest, o.Number)
		}
	}
	for _, r := range operations {
		if r.IsWrite {
			continue
		}
		write, isWritten := written[r.Number]
		if (!isWritten && r.Number != 0) || write.Call > r.Return {
			return fmt.Sprintf("%s read %d, which nothing had written", r.Client, r.Number)
		}
		// What was acknowledged or read before, and continued, is the least that may be read.
		for _, o := range operations {
			isKnown := survived[o.Number] && o.Return < r.Call && (!o.IsWrite || o.IsAcknowledged)
			if isKnown && o.Number > r.Number {
				return fmt.Sprintf("%s read %d after %d, which the history has", r.Client, r.Number, o.Number)
			}
		}
		if r.Number < settled {
			return fmt.Sprintf("%s read %d after %d of an earlier round", r.Client, r.Number, settled)
		}
	}
	last, isWritten := written[final]
	switch {
	case final < newest:
		return fmt.Sprintf("%d is left, but the history has %d", final, newest)
	case final != 0 && !isWritten:
		return fmt.Sprintf("%d is left, which nothing has written", final)
	case last.IsAcknowledged && final != 0 && !survived[final]:
		return fmt.Sprintf("%d is left, but the failover table says that it is lost", final)
	}
	return ""
}
