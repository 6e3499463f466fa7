package main

import (
	"time"

	"github.com/couchbase/gocb/v2"
)

// locks: who has the lock's CAS may write, everybody may read.
func (p *program) locks() string {
	const key, lock = "locked", 30 * time.Second
	// Without this the SDK waits for a lock to go, until its timeout.
	never := neverRetry{}
	stored := must(p.collection.Upsert(key, 1, nil))
	locked := must(p.collection.GetAndLock(key, lock, nil))
	equal(content[int](locked), 1)
	check(locked.Cas() != stored.Cas(), "a CAS of the lock")
	seen := must(p.collection.Get(key, nil))
	equal(content[int](seen), 1)
	check(seen.Cas() != locked.Cas(), "a CAS that readers cannot use")
	_, err := p.collection.Upsert(key, 2, &gocb.UpsertOptions{RetryStrategy: never})
	fails(err, gocb.ErrDocumentLocked)
	_, err = p.collection.Remove(key, &gocb.RemoveOptions{RetryStrategy: never})
	fails(err, gocb.ErrDocumentLocked)
	_, err = p.collection.GetAndLock(key, lock, &gocb.GetAndLockOptions{RetryStrategy: never})
	fails(err, gocb.ErrDocumentLocked)
	set := []gocb.MutateInSpec{gocb.UpsertSpec("n", 2, nil)}
	_, err = p.collection.MutateIn(key, set, &gocb.MutateInOptions{RetryStrategy: never})
	fails(err, gocb.ErrDocumentLocked)
	fails(p.collection.Unlock(key, stored.Cas(), &gocb.UnlockOptions{RetryStrategy: never}), gocb.ErrCasMismatch, gocb.ErrDocumentLocked)
	// The holder's write takes the lock away.
	written := must(p.collection.Replace(key, 3, &gocb.ReplaceOptions{Cas: locked.Cas()}))
	equal(must(p.collection.Get(key, nil)).Cas(), written.Cas())
	fails(p.collection.Unlock(key, written.Cas(), nil), gocb.ErrDocumentNotLocked)
	locked = must(p.collection.GetAndLock(key, lock, nil))
	ok(p.collection.Unlock(key, locked.Cas(), nil))
	must(p.collection.Upsert(key, 4, nil))
	// A lock that ends by itself is waited for by the SDK.
	must(p.collection.GetAndLock(key, time.Second, nil))
	must(p.collection.Upsert(key, 5, &gocb.UpsertOptions{Timeout: 20 * time.Second}))
	equal(content[int](must(p.collection.Get(key, nil))), 5)
	_, err = p.collection.GetAndLock("never-written", lock, nil)
	fails(err, gocb.ErrDocumentNotFound)
	fails(p.collection.Unlock("never-written", written.Cas(), nil), gocb.ErrDocumentNotFound)
	return ""
}
