package main

import "slices"

// Mutants: violations that are planted into recorded histories, and that the checkers have to find.
// Each function returns a changed copy, or nothing where the history has no place for it.

type registerMutant struct {
	name  string
	plant func(operations []operation) []operation
}

var registerMutants = []registerMutant{
	{"stale-read", plantStaleRead},
	{"unwritten-value", plantUnwrittenValue},
	{"double-replace", plantDoubleReplace},
	{"repeated-increment", plantRepeatedIncrement},
	{"changed-cas", plantChangedCas},
}

// plantStaleRead makes a read return what was overwritten before it began.
func plantStaleRead(operations []operation) []operation {
	writes := func(o operation) bool { return o.Outcome == done && (o.Kind == set || o.Kind == replace) }
	for at, r := range slices.Backward(operations) {
		if r.Kind != read || r.Outcome != done {
			continue
		}
		for _, newer := range operations {
			if !writes(newer) || newer.Return >= r.Call {
				continue
			}
			for _, older := range operations {
				if writes(older) && older.Return < newer.Call {
					changed := slices.Clone(operations)
					changed[at].Value, changed[at].Cas = older.Value, older.Cas
					return changed
				}
			}
		}
	}
	return nil
}

func plantUnwrittenValue(operations []operation) []operation {
	for at, o := range slices.Backward(operations) {
		if o.Kind == read && o.Outcome == done {
			changed := slices.Clone(operations)
			changed[at].Value, changed[at].Cas = -7, 0
			return changed
		}
	}
	return nil
}

// plantDoubleReplace makes two replaces of one version succeed.
func plantDoubleReplace(operations []operation) []operation {
	first := int64(0)
	for at, o := range operations {
		if o.Kind != replace || o.Outcome != done {
			continue
		}
		if first != 0 {
			changed := slices.Clone(operations)
			changed[at].Expect = first
			return changed
		}
		first = o.Expect
	}
	return nil
}

// plantRepeatedIncrement makes two increments return the same number: one of them is lost.
func plantRepeatedIncrement(operations []operation) []operation {
	first := int64(0)
	for at, o := range operations {
		if o.Kind != increment || o.Outcome != done {
			continue
		}
		if first != 0 {
			changed := slices.Clone(operations)
			changed[at].Value, changed[at].Cas = first, 0
			return changed
		}
		first = o.Value
	}
	return nil
}

func plantChangedCas(operations []operation) []operation {
	seen := map[int64]bool{}
	for at, o := range operations {
		if o.Outcome != done || o.Cas == 0 || o.Value == 0 {
			continue
		}
		if o.Kind == read && seen[o.Value] {
			changed := slices.Clone(operations)
			changed[at].Cas++
			return changed
		}
		seen[o.Value] = seen[o.Value] || o.Kind != remove
	}
	return nil
}

// plainRound is what the oracle of plain writes gets of one key.
type plainRound struct {
	operations     []plainOperation
	table          []historyEntry
	settled, final int64
}

type plainMutant struct {
	name  string
	plant func(r plainRound) (plainRound, bool)
}

var plainMutants = []plainMutant{
	{"plain-write-lost", func(r plainRound) (plainRound, bool) {
		at := r.newestSurvivor()
		if at < 0 {
			return r, false
		}
		r.final = r.settled
		return r, true
	}},
	{"plain-stale-read", func(r plainRound) (plainRound, bool) {
		at := r.newestSurvivor()
		if at < 0 {
			return r, false
		}
		end := r.operations[at].Return
		stale := plainOperation{Client: "mutant", Number: r.settled, Call: end + 1, Return: end + 2}
		r.operations = append(slices.Clone(r.operations), stale)
		return r, true
	}},
}

func (r plainRound) newestSurvivor() int {
	for at, o := range slices.Backward(r.operations) {
		if o.IsWrite && o.IsAcknowledged && continues(r.table, o.UUID, o.Seqno) {
			return at
		}
	}
	return -1
}

func (r plainRound) check() string { return checkPlain(r.operations, r.table, r.settled, r.final) }
