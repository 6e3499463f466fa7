package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/couchbase/gocbcore/v10"
)

// stream hears the changes of a vbucket. The agent calls it from one goroutine per connection.
type stream struct {
	consumer *consumer
	vb       uint16
	// The history and the snapshot that changes are part of.
	uuid, start, end uint64
}

// opened notes the newest history and that a stream was opened at a position.
func (s *stream) opened(entries []gocbcore.FailoverEntry, at position) {
	s.uuid = uint64(entries[0].VbUUID)
	s.start, s.end = at.start, at.end
	s.consumer.journal.noted("opened", s.vb, s.uuid, at.seqno)
}

func (s *stream) at(seqno uint64) position {
	if seqno == s.end {
		// The client has the whole snapshot.
		return position{s.uuid, seqno, seqno, seqno}
	}
	return position{s.uuid, seqno, s.start, s.end}
}

func (s *stream) change(kind string, seqno uint64, collection uint32, key []byte, cas uint64, value []byte) {
	s.consumer.journal.moved("change", s.vb, s.at(seqno), kind, fmt.Sprintf("%x", collection),
		hex.EncodeToString(key), cas, hex.EncodeToString(value))
}

func (s *stream) event(kind string, seqno, manifest uint64, scope, collection uint32, name []byte) {
	s.consumer.journal.moved("event", s.vb, s.at(seqno), kind, manifest, fmt.Sprintf("%x", scope),
		fmt.Sprintf("%x", collection), string(name))
}

func (s *stream) SnapshotMarker(m gocbcore.DcpSnapshotMarker) {
	s.start, s.end = m.StartSeqNo, m.EndSeqNo
	s.consumer.journal.noted("marker", s.vb, m.StartSeqNo, m.EndSeqNo, uint32(m.SnapshotType))
}

func (s *stream) Mutation(m gocbcore.DcpMutation) {
	s.change("mutation", m.SeqNo, m.CollectionID, m.Key, m.Cas, m.Value)
}

func (s *stream) Deletion(d gocbcore.DcpDeletion) {
	s.change("deletion", d.SeqNo, d.CollectionID, d.Key, d.Cas, nil)
}

func (s *stream) Expiration(e gocbcore.DcpExpiration) {
	s.change("expiration", e.SeqNo, e.CollectionID, e.Key, e.Cas, nil)
}

func (s *stream) CreateCollection(c gocbcore.DcpCollectionCreation) {
	s.event("collection-created", c.SeqNo, c.ManifestUID, c.ScopeID, c.CollectionID, c.Key)
}

func (s *stream) DeleteCollection(c gocbcore.DcpCollectionDeletion) {
	s.event("collection-dropped", c.SeqNo, c.ManifestUID, c.ScopeID, c.CollectionID, nil)
}

func (s *stream) CreateScope(c gocbcore.DcpScopeCreation) {
	s.event("scope-created", c.SeqNo, c.ManifestUID, c.ScopeID, 0, c.Key)
}

func (s *stream) DeleteScope(c gocbcore.DcpScopeDeletion) {
	s.event("scope-dropped", c.SeqNo, c.ManifestUID, c.ScopeID, 0, nil)
}

func (s *stream) SeqNoAdvanced(a gocbcore.DcpSeqNoAdvanced) {
	s.consumer.journal.moved("advanced", s.vb, s.at(a.SeqNo))
}

// End opens the stream again, unless nothing is left to hear of.
func (s *stream) End(_ gocbcore.DcpStreamEnd, err error) {
	s.consumer.journal.noted("ended", s.vb, fmt.Sprintf("%v", err))
	if err == nil || errors.Is(err, gocbcore.ErrDCPStreamFilterEmpty) {
		return
	}
	fmt.Fprintf(os.Stderr, "vb %d ended: %v\n", s.vb, err)
	go func() {
		time.Sleep(retryAfter)
		s.open(nil)
	}()
}

func (s *stream) FlushCollection(gocbcore.DcpCollectionFlush)         { s.unexpected("flush") }
func (s *stream) ModifyCollection(gocbcore.DcpCollectionModification) { s.unexpected("modification") }
func (s *stream) OSOSnapshot(gocbcore.DcpOSOSnapshot)                 { s.unexpected("snapshot out of order") }

func (s *stream) unexpected(what string) {
	s.consumer.journal.noted("unexpected", s.vb, what)
}
