package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// recorded is a history of clients of a correct register: operations take effect at a moment within
// their time.
func recorded(seed uint64, isCounter bool) []operation {
	random := rand.New(rand.NewPCG(seed, 1))
	var all []operation
	state, cas := int64(0), uint64(0)
	for moment := int64(100); moment < 6000; moment += 10 {
		o := operation{
			Client: string(rune('a' + moment/10%5)), Outcome: done,
			Call: moment - random.Int64N(40), Return: moment + random.Int64N(40),
		}
		kinds := []kind{read, read, set, replace, replace, remove}
		if isCounter {
			kinds = []kind{read, increment}
		}
		switch o.Kind = kinds[random.IntN(len(kinds))]; o.Kind {
		case set:
			o.Value = moment
		case replace:
			o.Value, o.Expect = moment, state
			if state == 0 {
				o.Outcome = missing
			} else if random.IntN(4) == 0 {
				o.Expect, o.Outcome = -1, mismatch
			}
		case remove:
			if state == 0 {
				o.Outcome = missing
			}
		case increment:
			o.Value = state + 1
		case read:
			o.Value, o.Cas = state, cas
		}
		// The client does not learn of some, and some of these never happen.
		if o.Kind != read && o.Outcome == done && random.IntN(120) == 0 {
			o.Outcome = unknown
			if random.IntN(2) == 0 {
				all = append(all, o)
				continue
			}
		}
		if o.Outcome != mismatch && o.Outcome != missing && o.Kind != read {
			_, state = effect(state, o)
			cas = uint64(moment)
			if state == 0 {
				cas = 0
			}
			if o.Outcome == done {
				o.Cas = cas
			}
		}
		all = append(all, o)
	}
	return all
}

func TestCorrectHistoriesAreLinearizable(t *testing.T) {
	for seed := range uint64(20) {
		for _, isCounter := range []bool{false, true} {
			operations := recorded(seed, isCounter)
			if found := check(operations, time.Minute, ""); found != linearizable {
				t.Errorf("seed %d, counter %v: %d", seed, isCounter, found)
			}
			if conflict := casConflict(operations); conflict != "" {
				t.Errorf("seed %d: %s", seed, conflict)
			}
		}
	}
}

func TestEveryRegisterMutantIsFound(t *testing.T) {
	for _, m := range registerMutants {
		tried := 0
		for seed := range uint64(20) {
			for _, isCounter := range []bool{false, true} {
				changed := m.plant(recorded(seed, isCounter))
				if changed == nil {
					continue
				}
				tried++
				if check(changed, time.Minute, "") != violated && casConflict(changed) == "" {
					t.Errorf("%s is not found, seed %d", m.name, seed)
				}
			}
		}
		if tried < 20 {
			t.Errorf("%s was planted %d times only", m.name, tried)
		}
	}
}

// write is an acknowledged plain write.
func write(number, end int64, uuid, seqno uint64) plainOperation {
	return plainOperation{IsWrite: true, IsAcknowledged: true, Number: number, Call: end - 1, Return: end, UUID: uuid, Seqno: seqno}
}

// After a failover at seqno 20 the second write is lost, and the third has the new history.
func failedOver() plainRound {
	return plainRound{
		operations: []plainOperation{
			write(1, 10, 7, 20), write(2, 20, 7, 21),
			{Number: 2, Call: 21, Return: 22}, {Number: 1, Call: 30, Return: 31},
			write(3, 40, 8, 21),
		},
		table: []historyEntry{{8, 20}, {7, 0}},
		final: 3,
	}
}

func TestPlainOracle(t *testing.T) {
	if wrong := failedOver().check(); wrong != "" {
		t.Errorf("a visible loss is allowed: %s", wrong)
	}
	wrong := map[string]func(r *plainRound){
		"invisible loss":   func(r *plainRound) { r.table, r.final = []historyEntry{{7, 0}}, 1 },
		"return of a loss": func(r *plainRound) { r.operations, r.final = r.operations[:4], 2 },
		"stale read": func(r *plainRound) {
			r.operations = append(r.operations, plainOperation{Number: 0, Call: 50, Return: 51})
		},
		"older than read before": func(r *plainRound) { r.operations[3].Number = 0 },
		"unwritten":              func(r *plainRound) { r.final = 9 },
		"older than settled":     func(r *plainRound) { r.operations, r.settled, r.final = nil, 2, 1 },
	}
	for name, change := range wrong {
		round := failedOver()
		change(&round)
		if round.check() == "" {
			t.Errorf("not found: %s", name)
		}
	}
	for _, m := range plainMutants {
		if changed, isPlanted := m.plant(failedOver()); !isPlanted || changed.check() == "" {
			t.Errorf("%s is not found", m.name)
		}
	}
}

func TestPlansRepeatAndLoseOneMemory(t *testing.T) {
	for round := range 500 {
		p := planned(7, round, abilities{true, true})
		if p.String() != planned(7, round, abilities{true, true}).String() {
			t.Fatalf("round %d differs", round)
		}
		victims := map[int]bool{}
		for _, f := range p.Faults {
			if f.Kind == killed {
				victims[f.Node] = true
			}
			if f.Node == f.Other && (f.Kind == cutPair || f.Kind == mutePeer) {
				t.Errorf("round %d: a node is cut from itself", round)
			}
		}
		if len(victims) > 1 != p.LosesMemories {
			t.Errorf("round %d: %d nodes are killed", round, len(victims))
		}
	}
}
