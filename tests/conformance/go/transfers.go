package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	groups, accountsOfGroup, openingBalance = 6, 3, 100
	transferWorkers, transferRounds         = 4, 2
	transfersMin                            = 10
	// What a killed client leaves can be told from what this one has in progress by the time that it asked for.
	transferTimeout, timeoutOfLost = 4 * time.Second, 10 * time.Second
	enoughMax, secondMax           = 60 * time.Second, 120 * time.Second
	cleanedUpMax                   = 60 * time.Second
)

// account is never written twice alike: Java's SDK takes a document with an equal checksum for an unchanged one, although
// it may have changed and changed back.
type account struct {
	Balance int    `json:"balance"`
	By      string `json:"by"`
}

type receipt struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Amount int    `json:"amount"`
}

// bank is money that many goroutines move between accounts, each time in a transaction with a receipt.
//
// Accounts are in groups, and nothing leaves its group. A transaction that reads a group and writes its balances back
// cannot commit unless it saw the group at one moment, so it has to see the group's sum.
type bank struct {
	*program
	name    string
	options *gocb.TransactionOptions

	lock sync.Mutex
	// The keys of receipts.
	committed, undone, unknown []string
}

func (b *bank) account(group, number int) string {
	return fmt.Sprintf("%s-account-%d-%d", b.name, group, number)
}

func (b *bank) accounts() map[string]int {
	balances := map[string]int{}
	for group := range groups {
		for number := range accountsOfGroup {
			balances[b.account(group, number)] = openingBalance
		}
	}
	return balances
}

func (b *bank) open() {
	for key, balance := range b.accounts() {
		options := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}
		must(b.collection.Upsert(key, account{Balance: balance}, options))
	}
}

// transfer calls `staged` before the commit.
func (b *bank) transfer(key string, staged func()) {
	// Always in the order of accounts: two transactions that wait for each other would cost a second.
	group, amount, order := rand.IntN(groups), rand.IntN(11)-5, rand.Perm(accountsOfGroup)[:2]
	slices.Sort(order)
	made := receipt{b.account(group, order[0]), b.account(group, order[1]), amount}
	err := b.run(func(a inside) {
		b.add(a, made.Source, -amount, key)
		b.add(a, made.Target, amount, key)
		must(a.Insert(b.collection, key, made))
		staged()
	}, b.options)
	b.lock.Lock()
	defer b.lock.Unlock()
	var ambiguous *gocb.TransactionCommitAmbiguousError
	switch {
	case err == nil:
		b.committed = append(b.committed, key)
	// To this SDK a connection that ends during the commit is a failure, although the commit may have been done.
	case errors.As(err, &ambiguous), errors.Is(err, io.EOF):
		b.unknown = append(b.unknown, key)
	default:
		b.undone = append(b.undone, key)
	}
}

// add changes a balance and returns what it was.
func (b *bank) add(a inside, key string, amount int, by string) int {
	got := must(a.Get(b.collection, key))
	var found account
	ok(got.Content(&found))
	must(a.Replace(got, account{found.Balance + amount, by}))
	return found.Balance
}

func (b *bank) audit(group int) {
	sum := 0
	ok(b.run(func(a inside) {
		sum = 0
		for number := range accountsOfGroup {
			sum += b.add(a, b.account(group, number), 0, fmt.Sprint(rand.Uint64()))
		}
	}, b.options))
	equal(sum, accountsOfGroup*openingBalance)
}

// compare checks that every balance is what the receipts say.
func (b *bank) compare(receipts []receipt) {
	expected, found := b.accounts(), map[string]int{}
	for _, each := range receipts {
		expected[each.Source] -= each.Amount
		expected[each.Target] += each.Amount
	}
	for key := range expected {
		found[key] = content[account](must(b.collection.Get(key, nil))).Balance
	}
	equal(found, expected)
}

// work runs the goroutines that make transfers; `wait` passes on the first failure of any.
func (b *bank) work(worker func(number int)) (wait func()) {
	var group sync.WaitGroup
	failures := make(chan any, transferWorkers)
	for number := range transferWorkers {
		group.Add(1)
		go func() {
			defer group.Done()
			defer func() {
				if cause := recover(); cause != nil {
					failures <- cause
				}
			}()
			worker(number)
		}()
	}
	return func() {
		group.Wait()
		select {
		case cause := <-failures:
			panic(cause)
		default:
		}
	}
}

// workUntil makes transfers, which may fail, until it is told to stop.
func (b *bank) workUntil(stopping func() bool, who string) (wait func()) {
	return b.work(func(worker int) {
		for number := 0; !stopping(); number++ {
			b.transfer(fmt.Sprintf("%s-receipt-%s-%d-%d", b.name, who, worker, number), func() {})
		}
	})
}

// tell and hear are how the two programs tell each other by documents when it is time to hold a transfer, and that it is
// held.
func (b *bank) tell(what string) {
	must(b.collection.Upsert(b.name+"-"+what, 1, nil))
}

func (b *bank) hear(what string) {
	deadline := time.Now().Add(enoughMax)
	for !must(b.collection.Exists(b.name+"-"+what, nil)).Exists() {
		check(time.Now().Before(deadline), "the other program says "+what)
		time.Sleep(10 * time.Millisecond)
	}
}

// waitForEnough waits for the first transfers.
func (b *bank) waitForEnough() {
	enough := func() bool {
		b.lock.Lock()
		defer b.lock.Unlock()
		return len(b.committed) >= transfersMin
	}
	for deadline := time.Now().Add(enoughMax); !enough(); time.Sleep(10 * time.Millisecond) {
		check(time.Now().Before(deadline), fmt.Sprintf("%d transfers", transfersMin))
	}
}

// transfers and audits by many goroutines; all commit in the end.
func (p *program) transfers(level gocb.DurabilityLevel) string {
	options := &gocb.TransactionOptions{DurabilityLevel: level, Timeout: time.Minute}
	b := &bank{program: p, name: fmt.Sprintf("bank-%d", level), options: options}
	b.open()
	started := time.Now()
	b.work(func(worker int) {
		for round := range transferRounds {
			for each := range 3 {
				b.transfer(fmt.Sprintf("%s-receipt-%d-%d", b.name, worker, 3*round+each), func() {})
			}
			b.audit(rand.IntN(groups))
		}
	})()
	seconds := time.Since(started).Seconds()
	audits := transferWorkers * transferRounds
	equal([]int{len(b.committed), len(b.undone), len(b.unknown)}, []int{3 * audits, 0, 0})
	var receipts []receipt
	for _, key := range b.committed {
		receipts = append(receipts, content[receipt](must(p.collection.Get(key, nil))))
	}
	b.compare(receipts)
	return fmt.Sprintf("%.0f transactions/s", float64(4*audits)/seconds)
}

// openBank is one whose transactions are persisted, and whose records have a collection of their own.
func (p *program) openBank(timeout time.Duration, cleansUp bool) *bank {
	other := *p
	other.cluster = must(gocb.Connect(p.connectionString, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: p.user, Password: p.password},
		TransactionsConfig: gocb.TransactionsConfig{
			MetadataCollection: &gocb.TransactionKeyspace{
				BucketName: "default", ScopeName: "transactions", CollectionName: "records",
			},
			Timeout:         timeout,
			DurabilityLevel: gocb.DurabilityLevelPersistToMajority,
			CleanupConfig: gocb.TransactionsCleanupConfig{
				CleanupWindow:               time.Second,
				DisableClientAttemptCleanup: !cleansUp,
				DisableLostAttemptCleanup:   !cleansUp,
			},
		},
	}))
	other.bucket = other.cluster.Bucket("default")
	other.collection = other.bucket.DefaultCollection()
	ok(other.bucket.WaitUntilReady(20*time.Second, nil))
	return &bank{program: &other, name: "bank-killed"}
}

// transfersLost makes transfers until this process is killed, at the latest when it has staged one that it never commits;
// nothing cleans up after them but the other program's SDK.
func (p *program) transfersLost() string {
	b := p.openBank(timeoutOfLost, false)
	deadline := time.Now().Add(secondMax)
	wait := b.workUntil(func() bool { return time.Now().After(deadline) }, "second")
	b.waitForEnough()
	fmt.Println("READY")
	b.hear("hold")
	b.transfer(b.name+"-receipt-held", func() {
		b.tell("held")
		wait()
	})
	return ""
}

// Another client and the server are killed in the middle of transfers, and only the server is started again.
func (p *program) transfersKilled() string {
	records := p.collectionOf("records")
	b := p.openBank(transferTimeout, true)
	defer b.cluster.Close(nil)
	b.open()
	control("start-second")
	var stopping atomic.Bool
	wait := b.workUntil(stopping.Load, "first")
	var left []record
	func() {
		defer wait()
		defer stopping.Store(true)
		b.waitForEnough()
		b.tell("hold")
		b.hear("held")
		control("kill-restart")
		left = entries(records)
	}()
	lost := 0
	for _, each := range left {
		check(each.D == "pm", "transactions that persist to the majority")
		if each.Exp > transferTimeout.Milliseconds() {
			lost++
		}
	}
	check(lost > 0, "attempts that their client cannot end")

	started := time.Now()
	for left = entries(records); len(left) > 0; left = entries(records) {
		check(time.Since(started) < cleanedUpMax, fmt.Sprintf("no entry remains, got %v", left))
		time.Sleep(100 * time.Millisecond)
	}
	cleanedUp := time.Since(started).Seconds()
	receipts := b.receipts()
	for _, key := range b.committed {
		_, isThere := receipts[key]
		check(isThere, "whatever was committed is there")
	}
	for _, key := range b.undone {
		_, isThere := receipts[key]
		check(!isThere, "whatever was undone is not there: "+key)
	}
	ofSecond, all := 0, []receipt{}
	for key, each := range receipts {
		all = append(all, each)
		if strings.Contains(key, "-second-") {
			ofSecond++
		}
	}
	check(ofSecond >= transfersMin, "transfers of the other client")
	b.compare(all)
	// What is still staged somewhere blocks no transaction.
	for group := range groups {
		b.audit(group)
	}
	return fmt.Sprintf("%d transfers, %d attempts lost, cleaned up after %.1f s", len(receipts), lost, cleanedUp)
}

func (b *bank) receipts() map[string]receipt {
	found := map[string]receipt{}
	scan := must(b.collection.Scan(gocb.NewRangeScanForPrefix(b.name+"-receipt-"), nil))
	for each := scan.Next(); each != nil; each = scan.Next() {
		var value receipt
		ok(each.Content(&value))
		found[each.ID()] = value
	}
	ok(scan.Err())
	return found
}

// record is an entry of an active transaction record.
type record struct {
	Exp int64  `json:"exp"`
	D   string `json:"d"`
}

// entries are those of all records.
func entries(records *gocb.Collection) (found []record) {
	eventually(timeouts, func() (err error) {
		found, err = entriesNow(records)
		return err
	})
	return found
}

func entriesNow(records *gocb.Collection) (found []record, err error) {
	scan, err := records.Scan(gocb.NewRangeScanForPrefix("_txn:atr-"), &gocb.ScanOptions{IDsOnly: true})
	if err != nil {
		return nil, err
	}
	attempts := []gocb.LookupInSpec{gocb.GetSpec("attempts", &gocb.GetSpecOptions{IsXattr: true})}
	for each := scan.Next(); each != nil; each = scan.Next() {
		result, err := records.LookupIn(each.ID(), attempts, nil)
		if errors.Is(err, gocb.ErrDocumentNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err = result.ContentAt(0, &raw); errors.Is(err, gocb.ErrPathNotFound) {
			continue
		}
		ok(err)
		var ofRecord map[string]record
		ok(json.Unmarshal(raw, &ofRecord))
		for _, entry := range ofRecord {
			found = append(found, entry)
		}
	}
	return found, scan.Err()
}

func control(action string) {
	answer := must(http.Post(os.Getenv("ORIBI_CONTROL")+"/"+action, "", nil))
	ok(answer.Body.Close())
	equal(answer.StatusCode, http.StatusOK)
}
