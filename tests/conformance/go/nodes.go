package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/couchbase/gocb/v2"
)

// changeNodes: nodes come and go, and what was acknowledged as persisted is read wherever its vbucket is now.
// It writes, asks for the change, reads everything back and writes again.
func (p *program) changeNodes(step string) string {
	p.writeDurably("before-" + step)
	answer := must(http.Post(os.Getenv("ORIBI_CONTROL")+"/"+step, "", nil))
	ok(answer.Body.Close())
	equal(answer.StatusCode, http.StatusOK)
	for key, value := range p.written {
		eventually(timeouts, func() error {
			found, err := p.collection.Get(key, nil)
			if err == nil {
				equal(content[string](found), value)
			}
			return err
		})
	}
	p.writeDurably("after-" + step)
	return ""
}

// writeDurably writes documents, half of them new ones, half those of other steps.
func (p *program) writeDurably(value string) {
	const count = 64
	options := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}
	transient := append([]error{gocb.ErrDurabilityAmbiguous}, timeouts...)
	for number := range count {
		key := fmt.Sprintf("shared-%d", number)
		if number%2 == 1 {
			key = fmt.Sprintf("%s-%d", value, number)
		}
		eventually(transient, func() error {
			_, err := p.collection.Upsert(key, value, options)
			return err
		})
		p.written[key] = value
	}
}
