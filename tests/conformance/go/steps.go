package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	valueBytesMax = 20 * 1024 * 1024
	documents     = 50_000
	inFlightMax   = 1_000
)

var (
	timeouts    = []error{gocb.ErrTimeout, gocb.ErrRequestCanceled}
	notThereYet = []error{gocb.ErrTimeout, gocb.ErrRequestCanceled, gocb.ErrCollectionNotFound, gocb.ErrScopeNotFound}
	raw         = gocb.NewRawBinaryTranscoder()
)

type program struct {
	connectionString, user, password string

	cluster    *gocb.Cluster
	bucket     *gocb.Bucket
	collection *gocb.Collection

	// What the steps of nodes.go have written.
	written map[string]string
}

func (p *program) open(password string) *gocb.Cluster {
	return p.openAs(p.user, password, gocb.CompressionConfig{})
}

func (p *program) openAs(user, password string, compression gocb.CompressionConfig) *gocb.Cluster {
	return must(gocb.Connect(p.connectionString, gocb.ClusterOptions{
		Authenticator:     gocb.PasswordAuthenticator{Username: user, Password: password},
		SecurityConfig:    gocb.SecurityConfig{TLSRootCAs: authorities()},
		CompressionConfig: compression,
	}))
}

// The authority that vouches for the server, where TLS is spoken.
func authorities() *x509.CertPool {
	path := os.Getenv("ORIBI_CA")
	if path == "" {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(path)))
	return pool
}

func (p *program) connect() string {
	p.cluster = p.open(p.password)
	p.bucket = p.cluster.Bucket(bucketName())
	p.collection = p.bucket.DefaultCollection()
	// With default options the cluster is only ready when the admin HTTP port answers too.
	ok(p.cluster.WaitUntilReady(20*time.Second, nil))
	ok(p.bucket.WaitUntilReady(20*time.Second, nil))
	report := must(p.bucket.Ping(nil))
	for _, endpoint := range report.Services[gocb.ServiceTypeKeyValue] {
		equal(endpoint.State, gocb.PingStateOk)
	}
	return ""
}

func (p *program) crud() string {
	first := must(p.collection.Insert("crud", map[string]any{"name": "Ada", "born": 1815}, nil))
	got := must(p.collection.Get("crud", nil))
	equal(content[map[string]any](got), map[string]any{"name": "Ada", "born": 1815.0})
	equal(got.Cas(), first.Cas())
	second := must(p.collection.Upsert("crud", map[string]any{"name": "Grace"}, nil))
	check(second.Cas() != first.Cas(), "a new CAS")
	third := must(p.collection.Replace("crud", []any{"a", 1, nil, "é"}, &gocb.ReplaceOptions{Cas: second.Cas()}))
	got = must(p.collection.Get("crud", nil))
	equal(content[[]any](got), []any{"a", 1.0, nil, "é"})
	equal(got.Cas(), third.Cas())
	must(p.collection.Remove("crud", &gocb.RemoveOptions{Cas: third.Cas()}))
	_, err := p.collection.Get("crud", nil)
	fails(err, gocb.ErrDocumentNotFound)
	return ""
}

func (p *program) notFound() string {
	const key = "never-written"
	_, err := p.collection.Get(key, nil)
	fails(err, gocb.ErrDocumentNotFound)
	_, err = p.collection.Remove(key, nil)
	fails(err, gocb.ErrDocumentNotFound)
	_, err = p.collection.Replace(key, 1, nil)
	fails(err, gocb.ErrDocumentNotFound)
	_, err = p.collection.Touch(key, 10*time.Second, nil)
	fails(err, gocb.ErrDocumentNotFound)
	_, err = p.collection.GetAndTouch(key, 10*time.Second, nil)
	fails(err, gocb.ErrDocumentNotFound)
	// Only a negative initial value means that the counter must exist.
	_, err = p.collection.Binary().Increment(key, &gocb.IncrementOptions{Delta: 1, Initial: -1})
	fails(err, gocb.ErrDocumentNotFound)
	return ""
}

func (p *program) exists() string {
	equal(must(p.collection.Exists("exists", nil)).Exists(), false)
	stored := must(p.collection.Insert("exists", 1, nil))
	found := must(p.collection.Exists("exists", nil))
	equal(found.Exists(), true)
	equal(found.Cas(), stored.Cas())
	_, err := p.collection.Insert("exists", 2, nil)
	fails(err, gocb.ErrDocumentExists)
	must(p.collection.Remove("exists", nil))
	equal(must(p.collection.Exists("exists", nil)).Exists(), false)
	return ""
}

func (p *program) casMismatch() string {
	old := must(p.collection.Upsert("cas", 1, nil)).Cas()
	current := must(p.collection.Upsert("cas", 2, nil)).Cas()
	_, err := p.collection.Replace("cas", 3, &gocb.ReplaceOptions{Cas: old})
	fails(err, gocb.ErrCasMismatch)
	_, err = p.collection.Remove("cas", &gocb.RemoveOptions{Cas: old})
	fails(err, gocb.ErrCasMismatch)
	equal(content[int](must(p.collection.Get("cas", nil))), 2)
	must(p.collection.Replace("cas", 4, &gocb.ReplaceOptions{Cas: current}))
	return ""
}

func (p *program) counters() string {
	binary := p.collection.Binary()
	up := func(delta uint64) uint64 {
		return must(binary.Increment("counter", &gocb.IncrementOptions{Delta: delta, Initial: 10})).Content()
	}
	down := func(delta uint64) uint64 {
		return must(binary.Decrement("counter", &gocb.DecrementOptions{Delta: delta, Initial: 10})).Content()
	}
	equal(up(5), uint64(10))
	equal(up(5), uint64(15))
	equal(down(4), uint64(11))
	equal(down(100), uint64(0))
	equal(content[int](must(p.collection.Get("counter", nil))), 0)
	must(p.collection.Upsert("not-a-counter", "text", nil))
	_, err := binary.Increment("not-a-counter", &gocb.IncrementOptions{Delta: 1})
	fails(err, gocb.ErrDeltaInvalid)
	var refusal *gocb.KeyValueError
	check(errors.As(err, &refusal) && refusal.Context != "", "the server says why")
	return ""
}

func (p *program) appendPrepend() string {
	must(p.collection.Upsert("concat", []byte("middle"), &gocb.UpsertOptions{Transcoder: raw}))
	must(p.collection.Binary().Append("concat", []byte("-end\x00"), nil))
	must(p.collection.Binary().Prepend("concat", []byte("\xffbegin-"), nil))
	got := must(p.collection.Get("concat", &gocb.GetOptions{Transcoder: raw}))
	equal(content[[]byte](got), []byte("\xffbegin-middle-end\x00"))
	return ""
}

func (p *program) expiry() string {
	must(p.collection.Insert("expiry", 1, &gocb.InsertOptions{Expiry: 2 * time.Second}))
	must(p.collection.Get("expiry", nil))
	p.untilNotFound("expiry")
	must(p.collection.Insert("expiry", 1, nil))
	return ""
}

func (p *program) touch() string {
	must(p.collection.Upsert("touch", 1, nil))
	must(p.collection.Touch("touch", 2*time.Second, nil))
	must(p.collection.Get("touch", nil))
	p.untilNotFound("touch")
	return ""
}

func (p *program) getAndTouch() string {
	must(p.collection.Upsert("gat", 7, nil))
	equal(content[int](must(p.collection.GetAndTouch("gat", 2*time.Second, nil))), 7)
	p.untilNotFound("gat")
	return ""
}

func (p *program) untilNotFound(key string) {
	deadline := time.Now().Add(20 * time.Second)
	for must(p.collection.Exists(key, nil)).Exists() {
		check(time.Now().Before(deadline), key+" expires")
		time.Sleep(100 * time.Millisecond)
	}
	_, err := p.collection.Get(key, nil)
	fails(err, gocb.ErrDocumentNotFound)
}

func (p *program) durability() string {
	levels := []gocb.DurabilityLevel{
		gocb.DurabilityLevelMajority,
		gocb.DurabilityLevelMajorityAndPersistOnMaster,
		gocb.DurabilityLevelPersistToMajority,
	}
	for _, level := range levels {
		key := fmt.Sprintf("durable-%d", level)
		must(p.collection.Insert(key, 1, &gocb.InsertOptions{DurabilityLevel: level}))
		must(p.collection.Replace(key, 2, &gocb.ReplaceOptions{DurabilityLevel: level}))
		p.mutateDurably(key, level)
		stored := must(p.collection.Upsert(key, 3, &gocb.UpsertOptions{DurabilityLevel: level}))
		got := must(p.collection.Get(key, nil))
		equal(content[int](got), 3)
		equal(got.Cas(), stored.Cas())
		must(p.collection.Remove(key, &gocb.RemoveOptions{DurabilityLevel: level}))
		_, err := p.collection.Get(key, nil)
		fails(err, gocb.ErrDocumentNotFound)
	}
	return ""
}

func (p *program) mutationTokens() string {
	first := must(p.collection.Upsert("token", 1, nil)).MutationToken()
	second := must(p.collection.Upsert("token", 2, nil)).MutationToken()
	removal := must(p.collection.Remove("token", nil)).MutationToken()
	check(first != nil && second != nil && removal != nil, "every mutation has a token")
	equal(first.BucketName(), bucketName())
	equal(first.PartitionID(), second.PartitionID())
	equal(first.PartitionUUID(), second.PartitionUUID())
	check(first.PartitionUUID() != 0, "a vbucket uuid")
	check(second.SequenceNumber() > first.SequenceNumber(), "seqnos grow")
	check(removal.SequenceNumber() > second.SequenceNumber(), "a removal has a newer token")
	// What queries are told to wait for.
	state := string(must(json.Marshal(gocb.NewMutationState(*first, *second))))
	equal(state, fmt.Sprintf(`{"%s":{"%d":[%d,"%d"]}}`, bucketName(), second.PartitionID(), second.SequenceNumber(), second.PartitionUUID()))
	return ""
}

func (p *program) collections() string {
	manager := p.bucket.CollectionsV2()
	ok(manager.CreateScope("go", nil))
	fails(manager.CreateScope("go", nil), gocb.ErrScopeExists)
	ok(manager.CreateCollection("go", "things", nil, nil))
	fails(manager.CreateCollection("go", "things", nil, nil), gocb.ErrCollectionExists)
	fails(manager.CreateCollection("nowhere", "things", nil, nil), gocb.ErrScopeNotFound)
	check(strings.Contains(p.scopes(), " go.things "), "the collection is listed")
	things := p.bucket.Scope("go").Collection("things")
	eventually(notThereYet, func() error {
		_, err := things.Upsert("same-key", "in things", nil)
		return err
	})
	must(p.collection.Upsert("same-key", "in default", nil))
	equal(content[string](must(things.Get("same-key", nil))), "in things")
	equal(content[string](must(p.collection.Get("same-key", nil))), "in default")
	ok(manager.DropCollection("go", "things", nil))
	fails(manager.DropCollection("go", "things", nil), gocb.ErrCollectionNotFound)
	check(!strings.Contains(p.scopes(), " go.things "), "the collection is gone")
	// A client cannot know that the collection will not come back, so it retries until its timeout.
	_, err := things.Get("same-key", &gocb.GetOptions{Timeout: 2 * time.Second})
	fails(err, notThereYet...)
	ok(manager.DropScope("go", nil))
	fails(manager.DropScope("go", nil), gocb.ErrScopeNotFound)
	check(!strings.Contains(p.scopes(), " go "), "the scope is gone")
	equal(content[string](must(p.collection.Get("same-key", nil))), "in default")
	return ""
}

// scopes lists " scope " and " scope.collection " of everything that exists.
func (p *program) scopes() string {
	var list strings.Builder
	for _, scope := range must(p.bucket.CollectionsV2().GetAllScopes(nil)) {
		fmt.Fprintf(&list, " %s ", scope.Name)
		for _, collection := range scope.Collections {
			fmt.Fprintf(&list, " %s.%s ", scope.Name, collection.Name)
		}
	}
	return list.String()
}

func (p *program) document20MiB() string {
	value := make([]byte, valueBytesMax)
	for i := range value {
		value[i] = byte(i % 251)
	}
	must(p.collection.Upsert("large", value, &gocb.UpsertOptions{Transcoder: raw, Timeout: 30 * time.Second}))
	got := must(p.collection.Get("large", &gocb.GetOptions{Transcoder: raw, Timeout: 30 * time.Second}))
	check(bytes.Equal(content[[]byte](got), value), "20 MiB come back unchanged")
	must(p.collection.Remove("large", nil))
	return ""
}

func (p *program) tooLarge() string {
	value := make([]byte, valueBytesMax+1)
	_, err := p.collection.Upsert("too-large", value, &gocb.UpsertOptions{Transcoder: raw, Timeout: 30 * time.Second})
	fails(err, gocb.ErrValueTooLarge)
	equal(must(p.collection.Exists("too-large", nil)).Exists(), false)
	return ""
}

// neverRetry makes an operation fail with the first error instead of retrying it until the timeout.
type neverRetry struct{}

func (neverRetry) RetryAfter(gocb.RetryRequest, gocb.RetryReason) gocb.RetryAction {
	return &gocb.NoRetryRetryAction{}
}

// The SDK connects in the background and keeps trying, because a password may become right, so by default
// the wait ends in a timeout. A retry strategy that never retries is its documented way to see the refusal.
func (p *program) wrongPassword() string {
	started := time.Now()
	cluster := p.open("not the password")
	defer cluster.Close(nil)
	options := &gocb.WaitUntilReadyOptions{RetryStrategy: neverRetry{}}
	fails(cluster.Bucket("default").WaitUntilReady(15*time.Second, options), gocb.ErrAuthenticationFailure)
	check(time.Since(started) < 20*time.Second, "the refusal is prompt")
	return ""
}

type document struct {
	Number int64  `json:"number"`
	Text   string `json:"text"`
}

func (p *program) parallel50000() string {
	text := strings.Repeat("x", 100)
	started := time.Now()
	inParallel(func(number int64) {
		result := must(p.collection.Upsert(fmt.Sprintf("parallel-%d", number), document{number, text}, nil))
		check(result.MutationToken() != nil, "a token")
	})
	written := time.Now()
	inParallel(func(number int64) {
		got := must(p.collection.Get(fmt.Sprintf("parallel-%d", number), nil))
		equal(content[document](got), document{number, text})
	})
	return fmt.Sprintf("%.0f writes/s, %.0f reads/s",
		documents/written.Sub(started).Seconds(), documents/time.Since(written).Seconds())
}

// inParallel passes on the first failure of any goroutine.
func inParallel(operation func(number int64)) {
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make(chan any, inFlightMax)
	for range inFlightMax {
		group.Add(1)
		go func() {
			defer group.Done()
			defer func() {
				if cause := recover(); cause != nil {
					failures <- cause
				}
			}()
			for number := next.Add(1) - 1; number < documents; number = next.Add(1) - 1 {
				operation(number)
			}
		}()
	}
	group.Wait()
	select {
	case cause := <-failures:
		panic(cause)
	default:
	}
}

// Whatever was acknowledged as persisted must survive, also what was acknowledged last.
func (p *program) killRestart() string {
	var stopping atomic.Bool
	var lock sync.Mutex
	var group sync.WaitGroup
	acknowledged := map[string]gocb.Cas{}
	count := func() int {
		lock.Lock()
		defer lock.Unlock()
		return len(acknowledged)
	}
	for writer := range 64 {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := 0; !stopping.Load(); number++ {
				key := fmt.Sprintf("crash-%d-%d", writer, number)
				options := &gocb.InsertOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}
				// A failed write was not acknowledged, so nothing is promised about it.
				if result, err := p.collection.Insert(key, key, options); err == nil {
					lock.Lock()
					acknowledged[key] = result.Cas()
					lock.Unlock()
				}
			}
		}()
	}
	for deadline := time.Now().Add(60 * time.Second); count() < 1_000 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	enough := count() >= 1_000
	response, err := http.Post(os.Getenv("ORIBI_CONTROL")+"/kill-restart", "", nil)
	stopping.Store(true)
	group.Wait()
	check(enough, "1,000 durable writes")
	ok(err)
	response.Body.Close()
	equal(response.StatusCode, 200)

	restarted := time.Now()
	eventually(timeouts, func() error {
		_, err := p.collection.Get("crash-0-0", nil)
		return err
	})
	reconnected := time.Since(restarted)
	for key, cas := range acknowledged {
		got := must(p.collection.Get(key, nil))
		equal(content[string](got), key)
		equal(got.Cas(), cas)
	}
	newer := must(p.collection.Upsert("crash-0-0", "newer", nil))
	check(newer.Cas() > acknowledged["crash-0-0"], "CAS values grow across a crash")
	return fmt.Sprintf("%d survived, reconnected after %.2f s", len(acknowledged), reconnected.Seconds())
}
