package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	readMax, writeMax = 1500 * time.Millisecond, 2500 * time.Millisecond
	registersOfBucket = 14
	countersOfBucket  = 4
	plainOfBucket     = 6
	workersOfBucket   = 6
	// The load is thin, so that histories are short and nodes are not starved.
	pauseMax = 25 * time.Millisecond
)

var levels = []gocb.DurabilityLevel{
	gocb.DurabilityLevelMajority,
	gocb.DurabilityLevelMajorityAndPersistOnMaster,
	gocb.DurabilityLevelPersistToMajority,
}

var levelNames = map[gocb.DurabilityLevel]string{
	gocb.DurabilityLevelMajority:                   "majority",
	gocb.DurabilityLevelMajorityAndPersistOnMaster: "majorityAndPersistToActive",
	gocb.DurabilityLevelPersistToMajority:          "persistToMajority",
}

// keys are those of one bucket that are used now, and those that were given up.
type keys struct {
	bucket   string
	replicas int

	lock      sync.Mutex
	registers []*history
	retired   []*history
	plain     []*plainKey
	doubtful  []*plainKey
	generated int
}

func newKeys(bucket string, replicas int) *keys {
	k := &keys{bucket: bucket, replicas: replicas}
	for number := range registersOfBucket + countersOfBucket {
		k.registers = append(k.registers, k.fresh(number >= registersOfBucket))
	}
	for range plainOfBucket {
		k.plain = append(k.plain, k.freshPlain())
	}
	return k
}

func (k *keys) fresh(isCounter bool) *history {
	k.generated++
	name := "register"
	if isCounter {
		name = "counter"
	}
	return &history{Bucket: k.bucket, Key: fmt.Sprintf("%s-%d", name, k.generated), IsCounter: isCounter}
}

func (k *keys) freshPlain() *plainKey {
	k.generated++
	return &plainKey{bucket: k.bucket, key: fmt.Sprintf("plain-%d", k.generated)}
}

// anyRegister gives up a key that has too much in doubt.
func (k *keys) anyRegister(random *rand.Rand) *history {
	k.lock.Lock()
	defer k.lock.Unlock()
	at := random.IntN(len(k.registers))
	if chosen := k.registers[at]; chosen.isFull() {
		k.retired = append(k.retired, chosen)
		k.registers[at] = k.fresh(chosen.IsCounter)
	}
	return k.registers[at]
}

// all has the keys that were given up, too.
func (k *keys) all() []*history { return slices.Concat(k.retired, k.registers) }

func (k *keys) anyPlain(random *rand.Rand) *plainKey {
	return k.plainAt(random.IntN(plainOfBucket))
}

func (k *keys) plainAt(at int) *plainKey {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.plain[at]
}

func (k *keys) giveUpPlain(at int) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.doubtful = append(k.doubtful, k.plain[at])
	k.plain[at] = k.freshPlain()
}

// service measures how long a vbucket serves nothing while clients ask.
type service struct {
	lock    sync.Mutex
	last    map[string]int64
	longest time.Duration
}

func (s *service) served(bucket, key string, end int64) {
	s.lock.Lock()
	defer s.lock.Unlock()
	name := fmt.Sprintf("%s/%d", bucket, vbucketOf(key))
	if last, isKnown := s.last[name]; isKnown {
		s.longest = max(s.longest, time.Duration(end-last))
	}
	s.last[name] = end
}

// restart begins a round, and returns the longest time of the one before.
func (s *service) restart() time.Duration {
	s.lock.Lock()
	defer s.lock.Unlock()
	longest := s.longest
	s.last, s.longest = map[string]int64{}, 0
	return longest
}

type counts struct {
	lock sync.Mutex
	of   map[string]int
}

func (c *counts) add(name string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.of[name]++
}

func (c *counts) copied() map[string]int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return maps.Clone(c.of)
}

func (c *counts) total() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	total := 0
	for _, count := range c.of {
		total += count
	}
	return total
}

// clientLink is a gocb client of a bucket, which can be replaced: gocbcore 10.9.3 locks itself up when
// the map drops a node from which an answer with a map arrives (kvMux.pipelineTakeover waits for
// the connection's reader, which waits in kvMux.handleNotMyVbucket for the mutex that it holds).
type clientLink struct {
	cluster atomic.Pointer[gocb.Cluster]
	found   atomic.Pointer[gocb.Collection]
}

func (l *clientLink) collection() *gocb.Collection { return l.found.Load() }

// connect replaces the client.
func (l *clientLink) connect(nodes []*node, bucket string) error {
	var seeds []string
	for _, n := range nodes {
		seeds = append(seeds, n.kv())
	}
	cluster, err := gocb.Connect("couchbase://"+strings.Join(seeds, ","), gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: user, Password: password},
	})
	if err != nil {
		return err
	}
	opened := cluster.Bucket(bucket)
	if err := opened.WaitUntilReady(clientsReady, &gocb.WaitUntilReadyOptions{
		ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue},
	}); err != nil {
		return fmt.Errorf("a client of %s is not ready: %w", bucket, err)
	}
	l.found.Store(opened.DefaultCollection())
	// One that has locked itself up never closes.
	if before := l.cluster.Swap(cluster); before != nil {
		go func() { _ = before.Close(nil) }()
	}
	return nil
}

// client is a goroutine that works on a bucket's keys.
type client struct {
	name    string
	link    *clientLink
	keys    *keys
	gate    *sync.RWMutex
	counts  *counts
	service *service
	// In rounds in which several memories are lost.
	persistsOnly *atomic.Bool
	random       *rand.Rand
}

var lastValue atomic.Int64

func (c *client) run() {
	for {
		c.gate.RLock()
		register := c.keys.anyRegister(c.random)
		if register.IsCounter {
			c.useCounter(register)
		} else {
			c.useRegister(register)
		}
		c.gate.RUnlock()
		time.Sleep(rand.N(pauseMax))
	}
}

func (c *client) useCounter(h *history) {
	if c.random.IntN(3) == 0 {
		c.get(h)
		return
	}
	c.write(h, increment, 0, 0, 0)
}

func (c *client) useRegister(h *history) {
	switch choice := c.random.IntN(20); {
	case choice < 7:
		c.get(h)
	case choice < 11:
		c.write(h, set, lastValue.Add(1), 0, 0)
	case choice < 12:
		c.write(h, remove, 0, 0, 0)
	default:
		seen, isSeen := c.get(h)
		switch {
		case !isSeen:
		case seen.Value == 0:
			c.write(h, insert, lastValue.Add(1), 0, 0)
		default:
			c.write(h, replace, lastValue.Add(1), seen.Value, gocb.Cas(seen.Cas))
		}
	}
}

func (c *client) get(h *history) (operation, bool) {
	o := operation{Client: c.name, Kind: read, Call: now()}
	result, err := c.link.collection().Get(h.Key, &gocb.GetOptions{Timeout: readMax})
	o.Return = now()
	var name string
	o.Outcome, name = classify(err)
	if o.Outcome == missing {
		o.Outcome = done
	} else if err == nil {
		o.Cas = uint64(result.Cas())
		if err := result.Content(&o.Value); err != nil {
			o.Value = -1
		}
	}
	c.note(h, o, name)
	return o, o.Outcome == done
}

func (c *client) write(h *history, k kind, value, expect int64, cas gocb.Cas) {
	level := levels[c.random.IntN(len(levels))]
	if c.persistsOnly.Load() {
		level = gocb.DurabilityLevelPersistToMajority
	}
	o := operation{Client: c.name, Kind: k, Level: levelNames[level], Value: value, Expect: expect, Call: now()}
	var result *gocb.MutationResult
	var err error
	switch k {
	case set:
		result, err = c.link.collection().Upsert(h.Key, value, &gocb.UpsertOptions{DurabilityLevel: level, Timeout: writeMax})
	case insert:
		result, err = c.link.collection().Insert(h.Key, value, &gocb.InsertOptions{DurabilityLevel: level, Timeout: writeMax})
	case replace:
		result, err = c.link.collection().Replace(h.Key, value,
			&gocb.ReplaceOptions{Cas: cas, DurabilityLevel: level, Timeout: writeMax})
	case remove:
		result, err = c.link.collection().Remove(h.Key, &gocb.RemoveOptions{DurabilityLevel: level, Timeout: writeMax})
	case increment:
		var counted *gocb.CounterResult
		counted, err = c.link.collection().Binary().Increment(h.Key,
			&gocb.IncrementOptions{Initial: 1, Delta: 1, DurabilityLevel: level, Timeout: writeMax})
		if err == nil {
			result, o.Value = &counted.MutationResult, int64(counted.Content())
		}
	}
	o.Return = now()
	var name string
	o.Outcome, name = classify(err)
	if err == nil {
		o.Cas = uint64(result.Cas())
	} else {
		o.Error = err.Error()
		o.Error = o.Error[:min(len(o.Error), 200)]
	}
	if k == replace && o.Outcome == exists {
		o.Outcome = mismatch
	}
	c.note(h, o, name)
}

func (c *client) note(h *history, o operation, name string) {
	h.add(o)
	c.counts.add(string(o.Kind) + ": " + name)
	if o.Outcome != unknown && o.Outcome != rejected {
		c.service.served(h.Bucket, h.Key, o.Return)
	}
}

// classify says what a client knows after an answer, and the answer's name in the table.
func classify(err error) (outcome, string) {
	var timeout *gocb.TimeoutError
	switch {
	case err == nil:
		return done, "done"
	case errors.Is(err, gocb.ErrCasMismatch):
		return mismatch, "other CAS"
	case errors.Is(err, gocb.ErrDocumentExists):
		return exists, "exists"
	case errors.Is(err, gocb.ErrDocumentNotFound):
		return missing, "missing"
	case errors.Is(err, gocb.ErrDurabilityImpossible):
		return rejected, "impossible (0xa1)"
	case errors.Is(err, gocb.ErrDurableWriteInProgress), errors.Is(err, gocb.ErrDurableWriteReCommitInProgress):
		return rejected, "in progress (0xa2, 0xa4)"
	case errors.Is(err, gocb.ErrTemporaryFailure):
		return rejected, "temporary failure"
	case errors.Is(err, gocb.ErrDurabilityAmbiguous):
		return unknown, "ambiguous (0xa3)"
	case errors.As(err, &timeout) && timeout.LastDispatchedTo == "":
		return rejected, "not sent"
	case errors.Is(err, gocb.ErrTimeout):
		return unknown, "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, gocb.ErrRequestCanceled):
		return unknown, "connection lost"
	default:
		return unknown, "other error"
	}
}

// plainWriter counts the plain keys of a bucket up, and reads them.
type plainWriter struct {
	client
	next int64
}

func (w *plainWriter) run() {
	for {
		w.gate.RLock()
		if w.random.IntN(3) == 0 {
			w.read(w.keys.anyPlain(w.random))
		} else {
			w.write(w.random.IntN(plainOfBucket))
		}
		w.gate.RUnlock()
		time.Sleep(rand.N(pauseMax))
	}
}

func (w *plainWriter) write(at int) {
	key := w.keys.plainAt(at)
	w.next++
	o := plainOperation{Client: w.name, IsWrite: true, Number: w.next, Call: now()}
	result, err := w.link.collection().Upsert(key.key, o.Number, &gocb.UpsertOptions{Timeout: writeMax})
	o.Return = now()
	found, name := classify(err)
	w.counts.add("plain set: " + name)
	if found == rejected {
		return
	}
	if err == nil && result.MutationToken() != nil {
		o.IsAcknowledged = true
		o.UUID, o.Seqno = result.MutationToken().PartitionUUID(), result.MutationToken().SequenceNumber()
		w.service.served(key.bucket, key.key, o.Return)
	}
	key.add(o)
	if !o.IsAcknowledged {
		w.keys.giveUpPlain(at)
	}
}

func (w *plainWriter) read(key *plainKey) {
	o := plainOperation{Client: w.name, Call: now()}
	result, err := w.link.collection().Get(key.key, &gocb.GetOptions{Timeout: readMax})
	o.Return = now()
	found, name := classify(err)
	w.counts.add("plain read: " + name)
	if err == nil && result.Content(&o.Number) != nil {
		o.Number = -1
	}
	if found == done || found == missing {
		key.add(o)
	}
}
