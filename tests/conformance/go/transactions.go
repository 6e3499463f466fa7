package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/couchbase/gocb/v2"
)

// Functions that take an attempt run inside a transaction, possibly more than once.
type inside = *gocb.TransactionAttemptContext

type counted struct {
	N int `json:"n"`
}

// place is a document in one of several collections.
type place struct {
	collection *gocb.Collection
	key        string
}

const waitMax = 20 * time.Second

// errApplication is what the program itself returns inside a transaction.
var errApplication = errors.New("no")

// collectionOf is one of the scope `transactions`, which exists afterwards.
func (p *program) collectionOf(name string) *gocb.Collection {
	manager := p.bucket.CollectionsV2()
	if err := manager.CreateScope("transactions", nil); !errors.Is(err, gocb.ErrScopeExists) {
		ok(err)
	}
	if err := manager.CreateCollection("transactions", name, nil, nil); !errors.Is(err, gocb.ErrCollectionExists) {
		ok(err)
	}
	collection := p.bucket.Scope("transactions").Collection(name)
	eventually(notThereYet, func() error {
		_, err := collection.Upsert("first", 1, nil)
		return err
	})
	return collection
}

// plain is what a client without a transaction reads; nil when there is no document.
func (w place) plain() *counted {
	got, err := w.collection.Get(w.key, nil)
	if errors.Is(err, gocb.ErrDocumentNotFound) {
		return nil
	}
	value := content[counted](must(got, err))
	return &value
}

// read is the same inside a transaction.
func (w place) read(a inside) *counted {
	got, err := a.Get(w.collection, w.key)
	if errors.Is(err, gocb.ErrDocumentNotFound) {
		return nil
	}
	ok(err)
	var value counted
	ok(got.Content(&value))
	return &value
}

func (w place) insert(a inside, n int) *gocb.TransactionGetResult {
	return must(a.Insert(w.collection, w.key, counted{n}))
}

func (w place) replace(a inside, n int) *gocb.TransactionGetResult {
	return must(a.Replace(must(a.Get(w.collection, w.key)), counted{n}))
}

func (w place) remove(a inside) {
	ok(a.Remove(must(a.Get(w.collection, w.key))))
}

func (w place) upsert(n int) {
	must(w.collection.Upsert(w.key, counted{n}, nil))
}

func plains(places ...place) (values []*counted) {
	for _, each := range places {
		values = append(values, each.plain())
	}
	return values
}

func reads(a inside, places ...place) (values []*counted) {
	for _, each := range places {
		values = append(values, each.read(a))
	}
	return values
}

// nothingStaged checks that no transaction has left anything, be the documents alive or deleted.
func nothingStaged(places ...place) {
	options := &gocb.LookupInOptions{}
	options.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted
	staged := []gocb.LookupInSpec{gocb.ExistsSpec("txn", &gocb.ExistsSpecOptions{IsXattr: true})}
	for _, each := range places {
		found, err := each.collection.LookupIn(each.key, staged, options)
		if !errors.Is(err, gocb.ErrDocumentNotFound) {
			check(!must(found, err).Exists(0), "nothing is staged in "+each.key)
		}
	}
}

// run runs a transaction. What its body checks, it checks by panics, which end the attempt, and then the step.
func (p *program) run(body func(inside), options *gocb.TransactionOptions) (err error) {
	var cause any
	_, err = p.cluster.Transactions().Run(func(a inside) (err error) {
		defer func() {
			if cause = recover(); cause != nil {
				var isError bool
				if err, isError = cause.(error); isError {
					cause = nil
				} else {
					err = errApplication
				}
			}
		}()
		body(a)
		return nil
	}, options)
	if cause != nil {
		panic(cause)
	}
	return err
}

// failed runs a transaction that has to fail for this reason.
func (p *program) failed(reason error, body func(inside)) {
	err := p.run(body, nil)
	var failure *gocb.TransactionFailedError
	check(errors.As(err, &failure), "a failed transaction")
	fails(err, reason)
}

// An insert, a replacement, a removal and reads, in three collections.
func (p *program) commit() string {
	left, right := p.collectionOf("left"), p.collectionOf("right")
	inserted, replaced, removed := place{right, "inserted"}, place{left, "replaced"}, place{p.collection, "removed"}
	seen, fleeting := place{right, "read"}, place{left, "fleeting"}
	replaced.upsert(1)
	removed.upsert(1)
	seen.upsert(7)
	ok(p.run(func(a inside) {
		equal(seen.read(a), &counted{7})
		first := inserted.insert(a, 2)
		second := replaced.replace(a, 3)
		removed.remove(a)
		// It sees its own writes, and no other client does.
		equal(reads(a, inserted, replaced, removed), []*counted{{2}, {3}, nil})
		equal(plains(inserted, replaced, removed), []*counted{nil, {1}, {1}})
		must(a.Replace(first, counted{4}))
		must(a.Replace(second, counted{5}))
		ok(a.Remove(fleeting.insert(a, 1)))
	}, nil))
	equal(plains(inserted, replaced, removed, fleeting), []*counted{{4}, {5}, nil, nil})
	// Where a document was deleted, one can be inserted again.
	ok(p.run(func(a inside) { removed.insert(a, 6) }, nil))
	equal(removed.plain(), &counted{6})
	nothingStaged(inserted, replaced, removed, fleeting, seen)
	return ""
}

// An error of the application undoes everything.
func (p *program) rollBack() string {
	left, right := p.collectionOf("left"), p.collectionOf("right")
	inserted, replaced, removed := place{right, "not-inserted"}, place{left, "kept"}, place{p.collection, "not-removed"}
	replaced.upsert(1)
	removed.upsert(1)
	p.failed(errApplication, func(a inside) {
		inserted.insert(a, 2)
		replaced.replace(a, 3)
		removed.remove(a)
		ok(errApplication)
	})
	equal(plains(inserted, replaced, removed), []*counted{nil, {1}, {1}})
	nothingStaged(inserted, replaced, removed)
	ok(p.run(func(a inside) { inserted.insert(a, 4) }, nil))
	equal(inserted.plain(), &counted{4})
	return ""
}

// meet runs two transactions at once: the first one holds what it has staged until the second one has collided with it.
// It returns how the second one ended.
func (p *program) meet(first, second func(inside)) error {
	staged, collided, done := make(chan bool, 16), make(chan bool, 16), make(chan error, 1)
	wait := func(signal chan bool, what string) {
		select {
		case <-signal:
		case <-time.After(waitMax):
			panic("expected: " + what)
		}
	}
	go func() {
		done <- p.runToError(func(a inside) {
			first(a)
			staged <- true
			wait(collided, "the other transaction begins anew")
		})
	}()
	wait(staged, "the first transaction stages its change")
	attempts := 0
	err := p.runToError(func(a inside) {
		if attempts++; attempts == 2 {
			collided <- true
		}
		second(a)
	})
	collided <- true
	ok(<-done)
	check(attempts >= 2, "a second attempt")
	return err
}

// runToError is `run` for goroutines, in which a panic would end the program.
func (p *program) runToError(body func(inside)) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
	}()
	return p.run(body, nil)
}

func (p *program) conflicts() string {
	at := func(key string) place { return place{p.collection, key} }
	add := func(w place, number int) func(inside) {
		return func(a inside) {
			got := must(a.Get(w.collection, w.key))
			var value counted
			ok(got.Content(&value))
			must(a.Replace(got, counted{value.N + number}))
		}
	}

	// Two that change the same document: both do.
	contended := at("contended")
	contended.upsert(0)
	ok(p.meet(add(contended, 1), add(contended, 10)))
	equal(contended.plain(), &counted{11})

	// Two that insert the same document: one does, and what else the other one did is undone.
	twice, beside := at("inserted-twice"), at("beside")
	err := p.meet(func(a inside) { twice.insert(a, 1) }, func(a inside) {
		beside.insert(a, 2)
		twice.insert(a, 2)
	})
	fails(err, gocb.ErrDocumentExists)
	equal(plains(twice, beside), []*counted{{1}, nil})

	// A document that is there cannot be inserted.
	p.failed(gocb.ErrDocumentExists, func(a inside) { contended.insert(a, 1) })

	// One that has gone since it was read cannot be replaced.
	gone := at("gone")
	gone.upsert(1)
	p.failed(gocb.ErrDocumentNotFound, func(a inside) {
		got := must(a.Get(gone.collection, gone.key))
		must(gone.collection.Remove(gone.key, nil))
		must(a.Replace(got, counted{2}))
	})
	equal(gone.plain(), (*counted)(nil))

	// A change without a transaction, after the read: the transaction sees it in its next attempt.
	changed, attempts := at("changed"), 0
	changed.upsert(0)
	ok(p.run(func(a inside) {
		got := must(a.Get(changed.collection, changed.key))
		if attempts++; attempts == 1 {
			changed.upsert(100)
		}
		var value counted
		ok(got.Content(&value))
		must(a.Replace(got, counted{value.N + 1}))
	}, nil))
	equal(changed.plain(), &counted{101})
	equal(attempts, 2)
	nothingStaged(contended, twice, beside, gone, changed)
	return ""
}

// What one transaction has staged, others do not see before it is committed.
func (p *program) stagedReads() string {
	replaced, removed := place{p.collection, "staged-replace"}, place{p.collection, "staged-remove"}
	inserted := place{p.collection, "staged-insert"}
	places, beside := []place{replaced, removed, inserted}, place{p.collection, "beside-staged"}
	before, after := []*counted{{1}, {1}, nil}, []*counted{{2}, nil, {3}}
	replaced.upsert(1)
	removed.upsert(1)
	beside.upsert(5)
	see := func(expected []*counted) {
		ok(p.run(func(a inside) {
			equal(reads(a, places...), expected)
			many := must(a.BulkGet([]gocb.TransactionBulkGetSpec{
				{Collection: p.collection, ID: replaced.key}, {Collection: p.collection, ID: beside.key},
			}, nil))
			values := make([]*counted, 2)
			for number := range values {
				ok(many.ContentAt(uint(number), &values[number]))
			}
			equal(values, []*counted{expected[0], {5}})
		}, nil))
	}
	ok(p.run(func(a inside) {
		replaced.replace(a, 2)
		removed.remove(a)
		inserted.insert(a, 3)
		equal(plains(places...), before)
		see(before)
	}, nil))
	equal(plains(places...), after)
	see(after)
	return ""
}

// Documents that are no JSON become others, and become JSON and back.
func (p *program) binary() string {
	first, second := []byte("\x00\xff\xfe first"), []byte("\x80second\x00")
	get, replace := &gocb.TransactionGetOptions{Transcoder: raw}, &gocb.TransactionReplaceOptions{Transcoder: raw}
	store := func(key string) { must(p.collection.Upsert(key, first, &gocb.UpsertOptions{Transcoder: raw})) }
	stored := func(key string) []byte {
		return content[[]byte](must(p.collection.Get(key, &gocb.GetOptions{Transcoder: raw})))
	}
	fromJSON, toJSON := place{p.collection, "binary-from-json"}, place{p.collection, "binary-to-json"}
	store("binary-replaced")
	store("binary-to-json")
	fromJSON.upsert(1)
	change := func(a inside) {
		must(a.InsertWithOptions(p.collection, "binary-inserted", first, &gocb.TransactionInsertOptions{Transcoder: raw}))
		must(a.ReplaceWithOptions(must(a.GetWithOptions(p.collection, "binary-replaced", get)), second, replace))
		must(a.ReplaceWithOptions(must(a.Get(p.collection, fromJSON.key)), second, replace))
		must(a.Replace(must(a.GetWithOptions(p.collection, toJSON.key, get)), counted{2}))
		var value []byte
		ok(must(a.GetWithOptions(p.collection, "binary-inserted", get)).Content(&value))
		equal(value, first)
	}
	p.failed(errApplication, func(a inside) {
		change(a)
		ok(errApplication)
	})
	equal(must(p.collection.Exists("binary-inserted", nil)).Exists(), false)
	equal([][]byte{stored("binary-replaced"), stored("binary-to-json")}, [][]byte{first, first})
	equal(fromJSON.plain(), &counted{1})
	ok(p.run(change, nil))
	equal([][]byte{stored("binary-inserted"), stored("binary-replaced"), stored("binary-from-json")}, [][]byte{first, second, second})
	equal(toJSON.plain(), &counted{2})
	nothingStaged(fromJSON, toJSON, place{p.collection, "binary-inserted"}, place{p.collection, "binary-replaced"})
	return ""
}
