package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/couchbase/gocb/v2"
)

// bucketName is the bucket that steps use, and replicaCount how many replicas it has.
func bucketName() string {
	if name := os.Getenv("ORIBI_BUCKET"); name != "" {
		return name
	}
	return "default"
}

func replicaCount() int {
	if count := os.Getenv("ORIBI_REPLICAS"); count != "" {
		return must(strconv.Atoi(count))
	}
	return 0
}

// replicas: what was written is read from every copy, once all have it, and from any. Without replicas the only copy
// answers for all.
func (p *program) replicas() string {
	stored := must(p.collection.Upsert("replicas", []int{1}, nil))
	eventually([]error{errCopiesDiffer}, func() error { return p.sameEverywhere("replicas", []int{1}, stored.Cas()) })
	got := must(p.collection.GetAnyReplica("replicas", nil))
	equal(content[[]int](&got.GetResult), []int{1})
	equal(got.Cas(), stored.Cas())
	specs := []gocb.LookupInSpec{gocb.GetSpec("[0]", nil), gocb.ExistsSpec("[1]", nil)}
	found := must(p.collection.LookupInAnyReplica("replicas", specs, nil))
	compareFound(found.LookupInResult, 0, 1.0)
	equal(found.Exists(1), false)
	looks := must(p.collection.LookupInAllReplicas("replicas", specs, nil))
	count, actives := 0, 0
	for each := looks.Next(); each != nil; each = looks.Next() {
		count++
		if !each.IsReplica() {
			actives++
		}
		compareFound(each.LookupInResult, 0, 1.0)
	}
	equal([]int{count, actives}, []int{replicaCount() + 1, 1})
	_, err := p.collection.GetAnyReplica("never-written", nil)
	fails(err, gocb.ErrDocumentUnretrievable)
	_, err = p.collection.LookupInAnyReplica("never-written", specs, nil)
	fails(err, gocb.ErrDocumentUnretrievable)
	return ""
}

var errCopiesDiffer = fmt.Errorf("copies differ")

// sameEverywhere fails unless each copy, of which one is no replica, has this version of a document.
func (p *program) sameEverywhere(key string, value []int, cas gocb.Cas) error {
	everywhere := must(p.collection.GetAllReplicas(key, nil))
	count, actives := 0, 0
	for each := everywhere.Next(); each != nil; each = everywhere.Next() {
		if each.Cas() != cas {
			return fmt.Errorf("%w: CAS %d instead of %d", errCopiesDiffer, each.Cas(), cas)
		}
		count++
		if !each.IsReplica() {
			actives++
		}
		equal(content[[]int](&each.GetResult), value)
	}
	if count != replicaCount()+1 || actives != 1 {
		return fmt.Errorf("%w: %d copies, %d active", errCopiesDiffer, count, actives)
	}
	return nil
}

// observedDurability: writes that wait until the SDK has observed them on the disk of all copies. Among those that it
// has observed in memory it counts the active copy, so that waiting for these says less.
func (p *program) observedDurability() string {
	const key = "observed"
	replicateTo := uint(replicaCount())
	persistTo := replicateTo + 1
	// Each of them is in all copies when it is acknowledged.
	stored := must(p.collection.Insert(key, []int{0}, &gocb.InsertOptions{PersistTo: persistTo, ReplicateTo: replicateTo}))
	ok(p.sameEverywhere(key, []int{0}, stored.Cas()))
	stored = must(p.collection.Replace(key, []int{1}, &gocb.ReplaceOptions{PersistTo: persistTo, ReplicateTo: replicateTo}))
	ok(p.sameEverywhere(key, []int{1}, stored.Cas()))
	stored = must(p.collection.Upsert(key, []int{2}, &gocb.UpsertOptions{PersistTo: persistTo, ReplicateTo: replicateTo}))
	ok(p.sameEverywhere(key, []int{2}, stored.Cas()))
	must(p.collection.Remove(key, &gocb.RemoveOptions{PersistTo: persistTo, ReplicateTo: replicateTo}))
	_, err := p.collection.Get(key, nil)
	fails(err, gocb.ErrDocumentNotFound)
	_, err = p.collection.GetAnyReplica(key, nil)
	fails(err, gocb.ErrDocumentUnretrievable)
	return ""
}
