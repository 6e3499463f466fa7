package main

import (
	"slices"
	"strings"

	"github.com/couchbase/gocb/v2"
)

// compression: documents that one client compresses and another, which did not negotiate it, reads and changes.
func (p *program) compression() string {
	cluster := p.openAs(p.user, p.password, gocb.CompressionConfig{Disabled: true})
	defer cluster.Close(nil)
	without := cluster.Bucket(bucketName()).DefaultCollection()
	readers := []*gocb.Collection{p.collection, without}
	text := strings.Repeat("compressible ", 400)

	must(p.collection.Upsert("compressed", map[string]any{"n": 1, "text": text}, nil))
	equal(datatype(without, "compressed"), []string{"json", "snappy"})
	for _, reader := range readers {
		equal(content[map[string]any](must(reader.Get("compressed", nil))), map[string]any{"n": 1.0, "text": text})
		found := must(reader.LookupIn("compressed", []gocb.LookupInSpec{gocb.GetSpec("text", nil)}, nil))
		compareFound(found, 0, text)
	}
	must(without.MutateIn("compressed", []gocb.MutateInSpec{
		gocb.IncrementSpec("n", 1, nil), gocb.UpsertSpec("user", 1, &gocb.UpsertSpecOptions{IsXattr: true}),
	}, nil))
	for _, reader := range readers {
		equal(content[map[string]any](must(reader.Get("compressed", nil))), map[string]any{"n": 2.0, "text": text})
	}
	must(without.Upsert("plain", text, nil))
	equal(datatype(p.collection, "plain"), []string{"json"})
	equal(content[string](must(p.collection.Get("plain", nil))), text)

	must(p.collection.Upsert("bytes", []byte(text), &gocb.UpsertOptions{Transcoder: raw}))
	must(without.Binary().Append("bytes", []byte("-end"), nil))
	must(p.collection.Binary().Prepend("bytes", []byte(text), nil))
	for _, reader := range readers {
		got := must(reader.Get("bytes", &gocb.GetOptions{Transcoder: raw}))
		equal(string(content[[]byte](got)), text+text+"-end")
	}
	return ""
}

// datatype says what the server keeps the document as.
func datatype(collection *gocb.Collection, key string) (names []string) {
	virtual := gocb.GetSpec("$document.datatype", &gocb.GetSpecOptions{IsXattr: true})
	found := must(collection.LookupIn(key, []gocb.LookupInSpec{virtual}, nil))
	ok(found.ContentAt(0, &names))
	slices.Sort(names)
	return names
}
