package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10/memd"
)

const (
	// After the last fault everything has to be served again, and all copies equal, within so long.
	healMax = 120 * time.Second
	// Once they are, every key can be read.
	readableMax = 20 * time.Second
	// For the history of one key.
	checkMax     = 30 * time.Second
	clientsReady = 60 * time.Second
	// After so long without service after the last fault, perhaps it is the client.
	clientPatience = 10 * time.Second
	beforeFaults   = 300 * time.Millisecond
	connectionMax  = 2
)

type session struct {
	options
	cluster *cluster
	buckets []*keys
	// The clients of each bucket.
	links        map[string][]*clientLink
	gate         sync.RWMutex
	persistsOnly atomic.Bool
	counts       *counts
	service      *service
	isPlanted    bool
	plainRounds  []plainRound
	report       report
	began        time.Time
}

func newRun(o options) (*session, error) {
	r := &session{
		options: o, links: map[string][]*clientLink{}, began: time.Now(),
		counts: &counts{of: map[string]int{}}, service: &service{last: map[string]int64{}},
	}
	r.report = report{Seed: o.seed, From: o.from, Faults: map[string]int{}}
	var err error
	if r.cluster, err = startCluster(o); err != nil {
		return nil, err
	}
	if r.abilities.disks && !r.cluster.nodes[0].hasSlowDisk() {
		fmt.Fprintln(os.Stderr, "SKIPPED: slow disks (a server that is linked dynamically)")
		r.abilities.disks = false
	}
	r.gate.Lock()
	for replicas := 1; replicas <= 2; replicas++ {
		k := newKeys(fmt.Sprintf("replicas-%d", replicas), replicas)
		if err := r.cluster.createBucket(k.bucket, replicas); err != nil {
			return nil, err
		}
		r.buckets = append(r.buckets, k)
	}
	r.report.Network = r.abilities.String()
	if violation := r.converge(); violation != "" {
		return nil, errors.New(violation)
	}
	for _, k := range r.buckets {
		if err := r.startClients(k); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// startClients starts everything that works on a bucket; it waits for the gate.
func (r *session) startClients(k *keys) error {
	for range connectionMax {
		link := &clientLink{}
		if err := link.connect(r.cluster.nodes, k.bucket); err != nil {
			return err
		}
		r.links[k.bucket] = append(r.links[k.bucket], link)
	}
	source := func(number int) *rand.Rand {
		return rand.New(rand.NewPCG(r.seed, uint64(1000*k.replicas+number+100_000*r.from)))
	}
	newClient := func(name string, number int) client {
		return client{
			name: fmt.Sprintf("%s %d", name, number), link: r.links[k.bucket][number%connectionMax], keys: k,
			gate: &r.gate, counts: r.counts, service: r.service, persistsOnly: &r.persistsOnly, random: source(number),
		}
	}
	for number := range workersOfBucket {
		worker := newClient("client", number)
		go worker.run()
	}
	writer := plainWriter{client: newClient("plain client", workersOfBucket)}
	go writer.run()
	for number, n := range r.cluster.nodes {
		reader := stubborn{node: n, keys: k, gate: &r.gate, counts: r.counts, random: source(100 + number)}
		go reader.run()
	}
	return nil
}

// rounds plays all rounds, until a violation.
func (r *session) rounds() {
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	for number := r.from; number < r.from+r.options.rounds && len(interrupt) == 0; number++ {
		p := planned(r.seed, number, r.abilities)
		violations := r.round(p)
		r.report.Rounds++
		if len(violations) > 0 {
			r.keep(p, violations)
			break
		}
	}
	if len(r.report.Violations) == 0 {
		if violations := r.readRetired(); len(violations) > 0 {
			r.keep(plan{Round: r.from + r.options.rounds}, violations)
		}
	}
	if len(r.report.Violations) == 0 {
		r.tryMutants()
	}
	for _, k := range r.buckets {
		r.report.Keys += len(k.registers) + len(k.retired)
	}
	r.report.Seconds = time.Since(r.began).Seconds()
	r.report.Operations = r.counts.copied()
}

func (r *session) round(p plan) []string {
	begun, before := time.Now(), r.counts.total()
	r.persistsOnly.Store(p.LosesMemories)
	if err := r.replaceClients(); err != nil {
		return []string{err.Error()}
	}
	r.service.restart()
	r.gate.Unlock()
	time.Sleep(beforeFaults)
	err := r.play(p)
	healed := now()
	violation := ""
	if err != nil {
		violation = err.Error()
	} else {
		violation = r.waitForService(healed)
	}
	served := time.Duration(now() - healed)
	r.gate.Lock()
	longest := r.service.restart()
	if violation == "" {
		violation = r.converge()
	}
	converged := time.Duration(now() - healed)
	if violation != "" {
		return []string{violation}
	}
	violations := r.checkRound()
	longer(&r.report.WithoutService, longest)
	longer(&r.report.Served, served)
	longer(&r.report.Converged, converged)
	fmt.Fprintf(os.Stderr, "seed %d, round %d: %v: %.1f s, %d operations, %.1f s without service, served %.1f s and "+
		"equal %.1f s after the last fault\n", r.seed, p.Round, p, time.Since(begun).Seconds(),
		r.counts.total()-before, longest.Seconds(), served.Seconds(), converged.Seconds())
	return violations
}

// play lets the faults begin and end.
func (r *session) play(p plan) error {
	begun := time.Now()
	for events := p.events(); len(events) > 0; {
		next := events[0]
		events = events[1:]
		time.Sleep(time.Until(begun.Add(next.at)))
		// A node that stops may wait for others, which have to heal first.
		if late := time.Since(begun) - next.At - next.For; !next.isOn && next.Kind == stopped && late < stopMax {
			if !r.cluster.nodes[next.Node].hasEnded() {
				next.at = time.Since(begun) + 50*time.Millisecond
				events = append(events, next)
				continue
			}
		}
		act := r.cluster.heal
		if next.isOn {
			act = r.cluster.strike
			r.report.Faults[next.Kind]++
		}
		if err := act(next.fault); err != nil {
			return fmt.Errorf("%s at %s: %w", next.Kind, nodeNames[next.Node], err)
		}
		if ended := r.cluster.ended(); ended != "" {
			return errors.New(ended)
		}
	}
	return nil
}

// waitForService waits until every vbucket with a register is served.
func (r *session) waitForService(healed int64) string {
	waiting, patience := "", time.Now().Add(clientPatience)
	isServed := func() bool {
		if time.Now().After(patience) {
			r.report.ClientsReplaced++
			if err := r.replaceClients(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			patience = time.Now().Add(clientPatience)
		}
		if waiting = r.cluster.ended(); waiting != "" {
			return true
		}
		for _, k := range r.buckets {
			if waiting = r.service.notServed(k, healed); waiting != "" {
				return false
			}
		}
		return true
	}
	if poll(healMax, isServed); waiting != "" {
		return fmt.Sprintf("%v after the last fault: %s", time.Duration(now()-healed).Round(time.Second), waiting)
	}
	return ""
}

// replaceClients gives every client a new connection to the cluster.
func (r *session) replaceClients() error {
	for bucket, links := range r.links {
		for _, link := range links {
			if err := link.connect(r.cluster.nodes, bucket); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *service) notServed(k *keys, since int64) string {
	k.lock.Lock()
	defer k.lock.Unlock()
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, h := range k.registers {
		if s.last[fmt.Sprintf("%s/%d", k.bucket, vbucketOf(h.Key))] < since {
			return fmt.Sprintf("vbucket %d of %s is not served", vbucketOf(h.Key), k.bucket)
		}
	}
	return ""
}

// converge waits until all copies are equal.
func (r *session) converge() string {
	var last error
	isDone := func() bool {
		for _, k := range r.buckets {
			if last = r.cluster.isConverged(k); last != nil {
				return false
			}
		}
		return true
	}
	if !poll(healMax, isDone) {
		return fmt.Sprintf("no convergence within %v: %v", healMax, last)
	}
	return ""
}

// checkRound reads every key once more and checks all that has changed.
func (r *session) checkRound() (violations []string) {
	for _, k := range r.buckets {
		// The leader may leave a copy out that lagged, and take it in again, also later.
		var different error
		if !poll(healMax, func() bool { different = r.compareCopies(k); return different == nil }) {
			violations = append(violations, different.Error())
		}
		violations = append(violations, r.checkPlainKeys(k)...)
		for _, h := range k.registers {
			violations = append(violations, r.finalRead(h)...)
		}
		violations = append(violations, r.checkRegisters(k.all())...)
	}
	return violations
}

// readRetired reads the keys that were given up: what was in doubt may have happened later, and the
// rest has to be there.
func (r *session) readRetired() (violations []string) {
	for _, k := range r.buckets {
		for _, h := range k.retired {
			violations = append(violations, r.finalRead(h)...)
		}
		violations = append(violations, r.checkRegisters(k.retired)...)
	}
	return violations
}

func (r *session) finalRead(h *history) []string {
	var last error
	isRead := func() bool {
		o := operation{Client: "final", Kind: read, Call: now(), Outcome: done}
		var result *gocb.GetResult
		result, last = r.links[h.Bucket][0].collection().Get(h.Key, &gocb.GetOptions{Timeout: readMax})
		o.Return = now()
		if found, _ := classify(last); found != done && found != missing {
			return false
		}
		if last == nil {
			o.Cas = uint64(result.Cas())
			if result.Content(&o.Value) != nil {
				o.Value = -1
			}
		}
		h.add(o)
		return true
	}
	if !r.isReadable(isRead) {
		return []string{r.unreadable(h.Bucket, h.Key, last)}
	}
	return nil
}

// isReadable repeats a read, if need be with new clients.
func (r *session) isReadable(isRead func() bool) bool {
	if poll(clientPatience, isRead) {
		return true
	}
	r.report.ClientsReplaced++
	return r.replaceClients() == nil && poll(readableMax, isRead)
}

// unreadable says what the client and each node answer to a read of the key.
func (r *session) unreadable(bucket, key string, err error) string {
	text := fmt.Sprintf("%s of %s (vbucket %d) cannot be read: %v; nodes answer", key, bucket, vbucketOf(key), err)
	for _, n := range r.cluster.nodes {
		answer := "nothing"
		if raw, err := dialRaw(n.kv(), bucket); err == nil {
			_ = raw.stream.SetDeadline(time.Now().Add(rawDialMax))
			request := &memd.Packet{Command: memd.CmdGet, Vbucket: vbucketOf(key), Key: []byte(key)}
			if packet, err := raw.call(request); err == nil {
				answer = fmt.Sprintf("%#x", uint16(packet.Status))
			}
			_ = raw.stream.Close()
		}
		text += fmt.Sprintf(" %s %s", n.name, answer)
	}
	return text
}

func (r *session) checkRegisters(all []*history) (violations []string) {
	for _, h := range all {
		h.lock.Lock()
		isDirty := h.isDirty
		h.isDirty = false
		h.lock.Unlock()
		if !isDirty {
			continue
		}
		for _, m := range registerMutants {
			if m.name == r.plant && !r.isPlanted {
				if changed := m.plant(h.copied()); changed != nil {
					h.replaceAll(changed)
					r.isPlanted = true
				}
			}
		}
		page := filepath.Join(r.directory, fmt.Sprintf("%s-%s.html", h.Bucket, h.Key))
		operations := h.copied()
		switch check(operations, checkMax, page) {
		case violated:
			violations = append(violations, fmt.Sprintf("%s of %s is not linearizable", h.Key, h.Bucket))
		case undecided:
			r.report.Undecided++
		}
		if conflict := casConflict(operations); conflict != "" {
			violations = append(violations, fmt.Sprintf("%s of %s: %s", h.Key, h.Bucket, conflict))
		}
	}
	return violations
}

func (r *session) checkPlainKeys(k *keys) (violations []string) {
	var tables [][]historyEntry
	var err error
	isKnown := func() bool { tables, err = r.cluster.failoverTables(k); return err == nil }
	if !poll(healMax, isKnown) {
		return []string{err.Error()}
	}
	for _, p := range slices.Concat(k.plain, k.doubtful) {
		var final int64
		var last error
		isRead := func() bool {
			var result *gocb.GetResult
			result, last = r.links[k.bucket][0].collection().Get(p.key, &gocb.GetOptions{Timeout: readMax})
			if found, _ := classify(last); found == missing {
				return true
			}
			return last == nil && result.Content(&final) == nil
		}
		if !poll(readableMax, isRead) {
			violations = append(violations, r.unreadable(k.bucket, p.key, last))
			continue
		}
		one := plainRound{p.copied(), tables[vbucketOf(p.key)], p.settled, final}
		for _, m := range plainMutants {
			if m.name == r.plant && !r.isPlanted {
				one, r.isPlanted = m.plant(one)
			}
		}
		if wrong := one.check(); wrong != "" {
			text, _ := json.Marshal(map[string]any{
				"operations": one.operations, "table": one.table, "settled": one.settled, "final": one.final,
			})
			_ = os.WriteFile(filepath.Join(r.directory, fmt.Sprintf("%s-%s.json", k.bucket, p.key)), text, 0o644)
			violations = append(violations, fmt.Sprintf("%s of %s (vbucket %d): %s", p.key, k.bucket, vbucketOf(p.key), wrong))
		}
		if len(r.plainRounds) < 200 {
			r.plainRounds = append(r.plainRounds, one)
		}
		r.report.PlainKeys++
		p.settle(final)
	}
	k.doubtful = nil
	return violations
}

// compareCopies reads every register from all of its copies.
func (r *session) compareCopies(k *keys) error {
	chains, err := r.cluster.chains(r.cluster.nodes[0], k.bucket)
	connections := map[*node]*rawConnection{}
	for _, n := range r.cluster.nodes {
		if err == nil {
			connections[n], err = dialRaw(n.kv(), k.bucket)
		}
		if err != nil {
			return fmt.Errorf("copies of %s cannot be compared: %w", k.bucket, err)
		}
		defer connections[n].stream.Close()
		_ = connections[n].stream.SetDeadline(time.Now().Add(readableMax))
	}
	for _, h := range k.registers {
		var first *memd.Packet
		for place, n := range chains[vbucketOf(h.Key)] {
			request := &memd.Packet{Command: memd.CmdGet, Vbucket: vbucketOf(h.Key), Key: []byte(h.Key)}
			if place > 0 {
				request.Command = memd.CmdGetReplica
			}
			answer, err := connections[n].call(request)
			if err != nil {
				return fmt.Errorf("copy of %s at %s: %w", h.Key, n.name, err)
			}
			if first == nil {
				first = answer
			}
			isEqual := answer.Status == first.Status && answer.Cas == first.Cas && bytes.Equal(answer.Value, first.Value)
			if !isEqual {
				return fmt.Errorf("copies of %s in %s differ: %v %q %#x, at %s %v %q %#x", h.Key, k.bucket,
					first.Status, first.Value, first.Cas, n.name, answer.Status, answer.Value, answer.Cas)
			}
		}
	}
	return nil
}

// tryMutants plants every mutant into recorded histories; each has to be found.
func (r *session) tryMutants() {
	for _, m := range registerMutants {
		r.report.Mutants++
		isFound := false
		for _, k := range r.buckets {
			for _, h := range k.all() {
				if isFound {
					break
				}
				changed := m.plant(h.copied())
				isFound = changed != nil && (check(changed, checkMax, "") == violated || casConflict(changed) != "")
			}
		}
		r.noteMutant(m.name, isFound)
	}
	for _, m := range plainMutants {
		r.report.Mutants++
		isFound := false
		for _, one := range r.plainRounds {
			changed, isPlanted := m.plant(one)
			isFound = isFound || (isPlanted && changed.check() != "")
		}
		r.noteMutant(m.name, isFound)
	}
}

func (r *session) noteMutant(name string, isFound bool) {
	if isFound {
		r.report.MutantsFound++
		return
	}
	r.report.Violations = append(r.report.Violations, fmt.Sprintf("the mutant %s was not found", name))
}

// keep writes everything down that a person needs to find the cause.
func (r *session) keep(p plan, violations []string) {
	r.report.Directory = r.directory
	for _, violation := range violations {
		text := fmt.Sprintf("in round %d (%v): %s", p.Round, p, violation)
		fmt.Fprintf(os.Stderr, "seed %d: VIOLATION %s\n", r.seed, text)
		r.report.Violations = append(r.report.Violations, text)
	}
	r.cluster.describe(r.buckets, r.directory)
	var all []*history
	for _, k := range r.buckets {
		all = append(all, k.all()...)
	}
	// Readers that follow no map still record.
	for _, h := range all {
		h.lock.Lock()
		defer h.lock.Unlock()
	}
	if text, err := json.Marshal(all); err == nil {
		_ = os.WriteFile(filepath.Join(r.directory, "histories.json"), text, 0o644)
	}
	if text, err := json.MarshalIndent(map[string]any{"seed": r.seed, "plan": p, "began": r.began.UTC(),
		"violations": violations}, "", "  "); err == nil {
		_ = os.WriteFile(filepath.Join(r.directory, "violation.json"), text, 0o644)
	}
}
