package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"
)

// Parts of documents, and attributes beside them: the cases of sub_documents.json, and what a table cannot say.

const (
	specsMax = 16
	day      = 24 * time.Hour
	// Of the document [7], as the server writes it.
	crc32cOfSeven = "0xd1f2ed59"
)

var errorsByName = map[string]error{
	"document-exists":    gocb.ErrDocumentExists,
	"document-not-found": gocb.ErrDocumentNotFound,
	// The SDK's name for it.
	"document-not-json":                     gocb.ErrValueNotJSON,
	"invalid-argument":                      gocb.ErrInvalidArgument,
	"number-too-big":                        gocb.ErrNumberTooBig,
	"path-exists":                           gocb.ErrPathExists,
	"path-invalid":                          gocb.ErrPathInvalid,
	"path-mismatch":                         gocb.ErrPathMismatch,
	"path-not-found":                        gocb.ErrPathNotFound,
	"path-too-big":                          gocb.ErrPathTooBig,
	"value-invalid":                         gocb.ErrValueInvalid,
	"xattr-cannot-modify-virtual-attribute": gocb.ErrXattrCannotModifyVirtualAttribute,
	"xattr-unknown-virtual-attribute":       gocb.ErrXattrUnknownVirtualAttribute,
}

type spec struct {
	Op, Path      string
	Value         any
	Values        []any
	Delta         int64
	Create, Xattr bool
}

// subDocumentCase is a case of sub_documents.json, where its fields are explained.
type subDocumentCase struct {
	Name       string
	Document   json.RawMessage
	Raw        *string
	Attributes map[string]any
	Semantics  string
	Change     []spec
	Returns    map[string]int64
	Becomes    json.RawMessage
	Look       []spec
	Finds      []any
	Refused    string
}

// runCases runs the cases that change documents, or those that do not.
func (p *program) runCases(areChanges bool) string {
	var file struct{ Cases []subDocumentCase }
	ok(json.Unmarshal(must(os.ReadFile(os.Getenv("ORIBI_SUB_DOCUMENTS"))), &file))
	count := 0
	for _, each := range file.Cases {
		if (each.Change != nil) == areChanges {
			p.runCase(&each)
			count++
		}
	}
	return fmt.Sprintf("%d cases", count)
}

func (p *program) runCase(c *subDocumentCase) {
	defer func() {
		if cause := recover(); cause != nil {
			panic(fmt.Sprintf("%s: %v", c.Name, cause))
		}
	}()
	key := "case: " + c.Name
	before := p.prepare(key, c)
	if c.Change != nil {
		p.change(key, c, before)
	} else if c.Refused != "" {
		_, err := p.collection.LookupIn(key, lookUpSpecs(c.Look), nil)
		failsAs(err, c.Refused)
		return
	}
	if c.Look != nil {
		found := must(p.collection.LookupIn(key, lookUpSpecs(c.Look), nil))
		equal(len(c.Look), len(c.Finds))
		for index, expected := range c.Finds {
			compareFound(found, uint(index), expected)
		}
	}
}

// prepare stores what the case begins with, and returns its CAS, or 0 where there is nothing.
func (p *program) prepare(key string, c *subDocumentCase) gocb.Cas {
	switch {
	case c.Raw != nil:
		must(p.collection.Upsert(key, []byte(*c.Raw), &gocb.UpsertOptions{Transcoder: raw}))
	case c.Document != nil:
		must(p.collection.Upsert(key, c.Document, nil))
	default:
		return 0
	}
	for name, value := range c.Attributes {
		p.attribute(key, name, value)
	}
	return must(p.collection.Get(key, &gocb.GetOptions{Transcoder: raw2json(c)})).Cas()
}

func (p *program) attribute(key, name string, value any) {
	set := gocb.UpsertSpec(name, value, &gocb.UpsertSpecOptions{IsXattr: true})
	must(p.collection.MutateIn(key, []gocb.MutateInSpec{set}, nil))
}

// raw2json is the transcoder for the document of a case.
func raw2json(c *subDocumentCase) gocb.Transcoder {
	if c.Raw != nil {
		return raw
	}
	return gocb.NewJSONTranscoder()
}

func (p *program) change(key string, c *subDocumentCase, before gocb.Cas) {
	semantics := map[string]gocb.StoreSemantics{
		"": gocb.StoreSemanticsReplace, "insert": gocb.StoreSemanticsInsert, "upsert": gocb.StoreSemanticsUpsert,
	}[c.Semantics]
	var specs []gocb.MutateInSpec
	for _, each := range c.Change {
		specs = append(specs, changeSpec(each))
	}
	done, err := p.collection.MutateIn(key, specs, &gocb.MutateInOptions{StoreSemantic: semantics})
	if c.Refused != "" {
		failsAs(err, c.Refused)
		if before != 0 {
			got := must(p.collection.Get(key, &gocb.GetOptions{Transcoder: raw2json(c)}))
			equal(got.Cas(), before)
			if c.Raw == nil {
				equal(content[any](got), decoded(c.Document))
			}
		}
		return
	}
	ok(err)
	check(done.MutationToken() != nil, "a mutation token")
	for index, expected := range c.Returns {
		var value int64
		ok(done.ContentAt(uint(must(strconv.Atoi(index))), &value))
		equal(value, expected)
	}
	got, err := p.collection.Get(key, nil)
	if string(c.Becomes) == "null" {
		fails(err, gocb.ErrDocumentNotFound)
		return
	}
	ok(err)
	equal(content[any](got), decoded(c.Becomes))
	equal(got.Cas(), done.Cas())
}

func decoded(text json.RawMessage) any {
	var value any
	ok(json.Unmarshal(text, &value))
	return value
}

func failsAs(err error, name string) {
	expected, known := errorsByName[name]
	check(known, "a known name instead of "+name)
	fails(err, expected)
}

func compareFound(found *gocb.LookupInResult, index uint, expected any) {
	var value any
	err := found.ContentAt(index, &value)
	if text, isText := expected.(string); isText && strings.HasPrefix(text, "!") {
		failsAs(err, text[1:])
		equal(found.Exists(index), false)
		return
	}
	ok(err)
	equal(value, expected)
}

func lookUpSpecs(specs []spec) (list []gocb.LookupInSpec) {
	for _, s := range specs {
		switch s.Op {
		case "get":
			list = append(list, gocb.GetSpec(s.Path, &gocb.GetSpecOptions{IsXattr: s.Xattr}))
		case "exists":
			list = append(list, gocb.ExistsSpec(s.Path, &gocb.ExistsSpecOptions{IsXattr: s.Xattr}))
		case "count":
			list = append(list, gocb.CountSpec(s.Path, &gocb.CountSpecOptions{IsXattr: s.Xattr}))
		default:
			panic("there is no " + s.Op)
		}
	}
	return list
}

func changeSpec(s spec) gocb.MutateInSpec {
	counter := &gocb.CounterSpecOptions{CreatePath: s.Create, IsXattr: s.Xattr}
	switch s.Op {
	case "upsert":
		return gocb.UpsertSpec(s.Path, s.Value, &gocb.UpsertSpecOptions{CreatePath: s.Create, IsXattr: s.Xattr})
	case "insert":
		return gocb.InsertSpec(s.Path, s.Value, &gocb.InsertSpecOptions{CreatePath: s.Create, IsXattr: s.Xattr})
	case "replace":
		return gocb.ReplaceSpec(s.Path, s.Value, &gocb.ReplaceSpecOptions{IsXattr: s.Xattr})
	case "remove":
		return gocb.RemoveSpec(s.Path, &gocb.RemoveSpecOptions{IsXattr: s.Xattr})
	case "array-append":
		return gocb.ArrayAppendSpec(s.Path, s.Values,
			&gocb.ArrayAppendSpecOptions{CreatePath: s.Create, IsXattr: s.Xattr, HasMultiple: true})
	case "array-prepend":
		return gocb.ArrayPrependSpec(s.Path, s.Values,
			&gocb.ArrayPrependSpecOptions{CreatePath: s.Create, IsXattr: s.Xattr, HasMultiple: true})
	case "array-insert":
		return gocb.ArrayInsertSpec(s.Path, s.Values, &gocb.ArrayInsertSpecOptions{IsXattr: s.Xattr, HasMultiple: true})
	case "array-add-unique":
		return gocb.ArrayAddUniqueSpec(s.Path, s.Value,
			&gocb.ArrayAddUniqueSpecOptions{CreatePath: s.Create, IsXattr: s.Xattr})
	case "increment":
		return gocb.IncrementSpec(s.Path, s.Delta, counter)
	case "decrement":
		return gocb.DecrementSpec(s.Path, s.Delta, counter)
	default:
		panic("there is no " + s.Op)
	}
}

func repeated[T any](value T, count int) (list []T) {
	for range count {
		list = append(list, value)
	}
	return list
}

// lookUpIn runs the cases, and tries the limit of paths in a request.
func (p *program) lookUpIn() string {
	must(p.collection.Upsert("limit", map[string]int{"a": 1}, nil))
	found := must(p.collection.LookupIn("limit", repeated(gocb.GetSpec("a", nil), specsMax), nil))
	for index := range uint(specsMax) {
		compareFound(found, index, 1.0)
	}
	_, err := p.collection.LookupIn("limit", repeated(gocb.GetSpec("a", nil), specsMax+1), nil)
	fails(err, gocb.ErrInvalidArgument)
	return p.runCases(false)
}

// mutateIn runs the cases, and tries the limit of paths in a request, and CAS.
func (p *program) mutateIn() string {
	old := must(p.collection.Upsert("limit", map[string]int{"n": 0}, nil)).Cas()
	specs := repeated(gocb.IncrementSpec("n", 1, nil), specsMax+1)
	_, err := p.collection.MutateIn("limit", specs, nil)
	fails(err, gocb.ErrInvalidArgument)
	done := must(p.collection.MutateIn("limit", specs[1:], &gocb.MutateInOptions{Cas: old}))
	check(done.Cas() != old, "a new CAS")
	equal(content[map[string]int](must(p.collection.Get("limit", nil))), map[string]int{"n": specsMax})
	_, err = p.collection.MutateIn("limit", specs[:1], &gocb.MutateInOptions{Cas: old})
	// The SDK takes the protocol's "exists" for a CAS mismatch in whole documents only.
	fails(err, gocb.ErrDocumentExists)
	equal(must(p.collection.Get("limit", nil)).Cas(), done.Cas())
	return p.runCases(true)
}

// macros reads what the server fills in: written as an attribute, and as a virtual one.
func (p *program) macros() string {
	must(p.collection.Upsert("macros", []int{7}, &gocb.UpsertOptions{Expiry: day}))
	xattr := &gocb.UpsertSpecOptions{IsXattr: true, CreatePath: true}
	done := must(p.collection.MutateIn("macros", []gocb.MutateInSpec{
		gocb.UpsertSpec("x.cas", gocb.MutationMacroCAS, xattr),
		gocb.UpsertSpec("x.seqno", gocb.MutationMacroSeqNo, xattr),
		gocb.UpsertSpec("x.crc", gocb.MutationMacroValueCRC32c, xattr),
	}, &gocb.MutateInOptions{PreserveExpiry: true}))
	virtual := &gocb.GetSpecOptions{IsXattr: true}
	found := must(p.collection.LookupIn("macros",
		[]gocb.LookupInSpec{gocb.GetSpec("x", virtual), gocb.GetSpec("$document", virtual)}, nil))
	var written struct{ Cas, Seqno, Crc string }
	ok(found.ContentAt(0, &written))
	equal(binary.LittleEndian.Uint64(must(hex.DecodeString(written.Cas[2:]))), uint64(done.Cas()))
	equal(number(written.Seqno), done.MutationToken().SequenceNumber())
	equal(written.Crc, crc32cOfSeven)
	var about struct {
		CAS, Seqno, RevID, Value_crc32c, Last_modified string
		Exptime, Value_bytes                           uint64
		Deleted                                        bool
	}
	ok(found.ContentAt(1, &about))
	equal(number(about.CAS), uint64(done.Cas()))
	equal(number(about.Seqno), done.MutationToken().SequenceNumber())
	equal(about.Value_crc32c, crc32cOfSeven)
	equal(about.Value_bytes, uint64(len("[7]")))
	equal(about.Deleted, false)
	check(about.Exptime > 0 && number(about.Last_modified) > 0, "an expiry and a time")
	check(number(about.RevID) > 1, "a second revision")
	return ""
}

// number reads a number as the server writes it, in hexadecimal with 0x or in decimal.
func number(text string) uint64 {
	return must(strconv.ParseUint(text, 0, 64))
}

// deletedDocuments has attributes that outlive their document, and a document that never lived.
func (p *program) deletedDocuments() string {
	xattr := &gocb.GetSpecOptions{IsXattr: true}
	deleted := &gocb.LookupInOptions{}
	deleted.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted
	sync := []gocb.LookupInSpec{gocb.GetSpec("_sync.r", xattr)}

	made := &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsInsert}
	made.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted | gocb.SubdocDocFlagCreateAsDeleted
	set := gocb.UpsertSpec("_sync", map[string]int{"r": 1}, &gocb.UpsertSpecOptions{IsXattr: true})
	must(p.collection.MutateIn("ghost", []gocb.MutateInSpec{set}, made))
	_, err := p.collection.Get("ghost", nil)
	fails(err, gocb.ErrDocumentNotFound)
	_, err = p.collection.LookupIn("ghost", sync, nil)
	fails(err, gocb.ErrDocumentNotFound)
	equal(must(p.collection.Exists("ghost", nil)).Exists(), false)
	compareFound(must(p.collection.LookupIn("ghost", sync, deleted)), 0, 1.0)
	again := &gocb.MutateInOptions{}
	again.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted
	count := gocb.IncrementSpec("_sync.r", 1, &gocb.CounterSpecOptions{IsXattr: true})
	must(p.collection.MutateIn("ghost", []gocb.MutateInSpec{count}, again))
	compareFound(must(p.collection.LookupIn("ghost", sync, deleted)), 0, 2.0)

	must(p.collection.Upsert("removed", map[string]int{"a": 1}, nil))
	p.attribute("removed", "_system", 1)
	p.attribute("removed", "user", 1)
	must(p.collection.Remove("removed", nil))
	system := []gocb.LookupInSpec{gocb.GetSpec("_system", xattr)}
	compareFound(must(p.collection.LookupIn("removed", system, deleted)), 0, 1.0)
	user := []gocb.LookupInSpec{gocb.GetSpec("user", xattr)}
	compareFound(must(p.collection.LookupIn("removed", user, deleted)), 0, "!path-not-found")
	return ""
}

func (p *program) projections() string {
	document := map[string]any{"n": 41.0, "a": map[string]any{"b": []any{1.0, 2.0}, "c": 3.0}}
	expected, fields := map[string]any{"n": 41.0}, []string{"n"}
	for index := range specsMax {
		name := fmt.Sprintf("f%d", index)
		document[name], expected[name], fields = float64(index), float64(index), append(fields, name)
	}
	stored := must(p.collection.Upsert("projections", document, &gocb.UpsertOptions{Expiry: day}))
	got := must(p.collection.Get("projections", &gocb.GetOptions{Project: []string{"n", "a.b", "nothing"}}))
	equal(content[any](got), map[string]any{"n": 41.0, "a": map[string]any{"b": []any{1.0, 2.0}}})
	equal(got.Cas(), stored.Cas())
	// More fields than a request has paths: the SDK reads the whole document.
	got = must(p.collection.Get("projections", &gocb.GetOptions{Project: fields}))
	equal(content[map[string]any](got), expected)
	got = must(p.collection.Get("projections", &gocb.GetOptions{Project: []string{"n"}, WithExpiry: true}))
	equal(content[any](got), map[string]any{"n": 41.0})
	check(got.ExpiryTime().After(time.Now()), "an expiry beside a projection")
	_, err := p.collection.Get("never-written", &gocb.GetOptions{Project: []string{"n"}})
	fails(err, gocb.ErrDocumentNotFound)
	return ""
}

func (p *program) preserveExpiry() string {
	expiry := func() time.Time {
		return must(p.collection.Get("preserved", &gocb.GetOptions{WithExpiry: true})).ExpiryTime()
	}
	set := func(value int) []gocb.MutateInSpec {
		return []gocb.MutateInSpec{gocb.UpsertSpec("n", value, nil)}
	}
	document := map[string]int{"n": 1}
	must(p.collection.Upsert("preserved", document, &gocb.UpsertOptions{Expiry: day}))
	first := expiry()
	check(first.After(time.Now()), "an expiry")
	must(p.collection.Upsert("preserved", document, &gocb.UpsertOptions{PreserveExpiry: true}))
	equal(expiry(), first)
	must(p.collection.Replace("preserved", document, &gocb.ReplaceOptions{PreserveExpiry: true}))
	equal(expiry(), first)
	must(p.collection.MutateIn("preserved", set(4), &gocb.MutateInOptions{PreserveExpiry: true}))
	equal(expiry(), first)
	must(p.collection.MutateIn("preserved", set(5), &gocb.MutateInOptions{Expiry: 2 * day}))
	check(expiry().After(first), "a later expiry")
	must(p.collection.Upsert("preserved", document, nil))
	check(!expiry().After(time.Now()), "no expiry")
	return ""
}

// mutateDurably changes an attribute with a durability level.
func (p *program) mutateDurably(key string, level gocb.DurabilityLevel) {
	set := gocb.UpsertSpec("user", key, &gocb.UpsertSpecOptions{IsXattr: true})
	must(p.collection.MutateIn(key, []gocb.MutateInSpec{set}, &gocb.MutateInOptions{DurabilityLevel: level}))
	get := gocb.GetSpec("user", &gocb.GetSpecOptions{IsXattr: true})
	compareFound(must(p.collection.LookupIn(key, []gocb.LookupInSpec{get}, nil)), 0, key)
}
