package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"
)

// rights: a user may write to the collection open, read shown, and know nothing of hidden.
func (p *program) rights() string {
	const scope = "rights"
	manager := p.bucket.CollectionsV2()
	ok(manager.CreateScope(scope, nil))
	for _, name := range []string{"open", "shown", "hidden"} {
		ok(manager.CreateCollection(scope, name, nil, nil))
		collection := p.bucket.Scope(scope).Collection(name)
		eventually(notThereYet, func() error {
			_, err := collection.Upsert("d", name, nil)
			return err
		})
	}
	cluster := p.openAs(os.Getenv("ORIBI_LIMITED_USER"), p.password, gocb.CompressionConfig{})
	defer cluster.Close(nil)
	limited := cluster.Bucket("default").Scope(scope)
	open, shown, hidden := limited.Collection("open"), limited.Collection("shown"), limited.Collection("hidden")

	equal(content[string](must(open.Get("d", nil))), "open")
	must(open.Upsert("d", map[string]int{"n": 1}, nil))
	must(open.MutateIn("d", []gocb.MutateInSpec{gocb.IncrementSpec("n", 1, nil)}, nil))
	compareFound(must(open.LookupIn("d", []gocb.LookupInSpec{gocb.GetSpec("n", nil)}, nil)), 0, 2.0)
	must(open.Remove("d", nil))

	equal(content[string](must(shown.Get("d", nil))), "shown")
	_, err := shown.Upsert("d", 1, nil)
	fails(err, gocb.ErrAuthenticationFailure)
	// The server's words and the reference of its log line reach whoever catches the error.
	var refusal *gocb.KeyValueError
	check(errors.As(err, &refusal), "a key-value error")
	check(strings.Contains(refusal.Context, "needs the privilege Upsert"), "the missing privilege, got "+refusal.Context)
	check(refusal.Ref != "", "a reference")
	_, err = shown.Insert("new", 1, nil)
	fails(err, gocb.ErrAuthenticationFailure)
	_, err = shown.Remove("d", nil)
	fails(err, gocb.ErrAuthenticationFailure)
	_, err = shown.Touch("d", day, nil)
	fails(err, gocb.ErrAuthenticationFailure)
	_, err = shown.MutateIn("d", []gocb.MutateInSpec{gocb.UpsertSpec("n", 1, nil)}, nil)
	fails(err, gocb.ErrAuthenticationFailure)
	_, err = shown.Binary().Append("d", []byte("x"), nil)
	fails(err, gocb.ErrAuthenticationFailure)
	equal(content[string](must(p.bucket.Scope(scope).Collection("shown").Get("d", nil))), "shown")
	// A client cannot know that the collection will not come, so it retries until its timeout.
	_, err = hidden.Get("d", &gocb.GetOptions{Timeout: time.Second})
	fails(err, notThereYet...)
	ok(manager.DropScope(scope, nil))
	return ""
}
