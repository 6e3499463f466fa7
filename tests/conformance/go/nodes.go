package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/couchbase/gocb/v2"
)

// changeNodes: nodes come and go, and what was acknowledged as persisted is read wherever its vbucket is now.
// It writes, asks for the change, reads everything back and writes again.
func (p *program) changeNodes(step string) string {
	p.writeDurably("before-" + step)
	answer := must(http.Post(os.Getenv("ORIBI_CONTROL")+"/"+step, "", nil))
	ok(answer.Body.Close())
	equal(answer.StatusCode, http.StatusOK)
	p.compareWritten(p.collection)
	p.writeDurably("after-" + step)
	return ""
}

// newClient: a client that begins while a node is away finds the others, and every document.
func (p *program) newClient() string {
	cluster := p.open(p.password)
	defer cluster.Close(nil)
	ok(cluster.WaitUntilReady(20*time.Second, nil))
	bucket := cluster.Bucket(bucketName())
	ok(bucket.WaitUntilReady(20*time.Second, nil))
	p.compareWritten(bucket.DefaultCollection())
	return ""
}

// compareWritten reads everything that was written.
func (p *program) compareWritten(collection *gocb.Collection) {
	for key, value := range p.written {
		eventually(timeouts, func() error {
			found, err := collection.Get(key, nil)
			if err == nil {
				equal(content[string](found), value)
			}
			return err
		})
	}
}

// writeDurably writes documents, half of them new ones, half those of other steps.
func (p *program) writeDurably(value string) {
	const count = 64
	options := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}
	// The SDK returns what the socket of a killed node ends with as it is, to a request that is under way, too.
	transient := append([]error{gocb.ErrDurabilityAmbiguous, syscall.ECONNRESET, syscall.EPIPE, io.EOF}, timeouts...)
	for number := range count {
		key := fmt.Sprintf("shared-%d", number)
		if number%2 == 1 {
			key = fmt.Sprintf("%s-%d", value, number)
		}
		eventually(transient, func() error {
			_, err := p.collection.Upsert(key, value, options)
			if errors.Is(err, gocb.ErrDurabilityImpossible) && replicaCount() > 0 {
				// Fewer copies than a majority follow: one of two is away, or another one is slow, too.
				_, err = p.collection.Upsert(key, value, nil)
			}
			return err
		})
		p.written[key] = value
	}
}
