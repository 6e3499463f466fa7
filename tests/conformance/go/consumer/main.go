// A consumer of change streams over gocbcore's DCP agent, which writes everything that it hears into a journal.
//
// Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_BUCKET, ORIBI_JOURNAL and ORIBI_FILTER, goes on where the journal ends,
// and runs until it is killed. It says READY when all streams are open. ORIBI_FILTER is empty, `legacy` (no
// collections), `scope:ID` or `collections:ID,ID`, with ids in hexadecimal.
package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

const (
	// Small, so that the server has to wait for acknowledgements all the time.
	windowBytes = 128 * 1024
	openFlags   = memd.DcpOpenFlagProducer | memd.DcpOpenFlagIncludeXattrs | memd.DcpOpenFlagIncludeDeleteTimes
	readyMax    = 30 * time.Second
	retryAfter  = 100 * time.Millisecond
)

type consumer struct {
	agent   *gocbcore.DCPAgent
	journal *journal
	options gocbcore.OpenStreamOptions
	// Streams that are not open for the first time yet.
	opening sync.WaitGroup
}

func main() {
	filter := os.Getenv("ORIBI_FILTER")
	c := &consumer{agent: agent(filter != "legacy"), journal: openJournal(os.Getenv("ORIBI_JOURNAL"))}
	c.options = options(filter)
	vbuckets := must(must(c.agent.ConfigSnapshot()).NumVbuckets())
	c.opening.Add(vbuckets)
	for vb := range vbuckets {
		s := &stream{consumer: c, vb: uint16(vb)}
		go s.open(c.opening.Done)
	}
	c.opening.Wait()
	fmt.Println("READY")
	select {}
}

func agent(collections bool) *gocbcore.DCPAgent {
	config := gocbcore.DCPAgentConfig{BucketName: os.Getenv("ORIBI_BUCKET")}
	ok(config.FromConnStr(os.Getenv("ORIBI_CONNSTR")))
	config.SecurityConfig.Auth = gocbcore.PasswordAuthProvider{
		Username: os.Getenv("ORIBI_USER"), Password: os.Getenv("ORIBI_PASSWORD"),
	}
	config.IoConfig.UseCollections = collections
	config.CompressionConfig.Enabled = true
	config.DCPConfig.BufferSize = windowBytes
	config.DCPConfig.UseExpiryOpcode = true
	if collections {
		config.DCPConfig.MaxSnapshotMarkerVersion = gocbcore.MaxSnapshotMarkerVersionV2_2
	}
	made := must(gocbcore.CreateDcpAgent(&config, fmt.Sprintf("conformance:%d", os.Getpid()), openFlags))
	ready := make(chan error, 1)
	patient := gocbcore.WaitUntilReadyOptions{RetryStrategy: gocbcore.NewBestEffortRetryStrategy(nil)}
	must(made.WaitUntilReady(time.Now().Add(readyMax), patient, func(_ *gocbcore.WaitUntilReadyResult, err error) { ready <- err }))
	ok(<-ready)
	return made
}

func options(filter string) gocbcore.OpenStreamOptions {
	kind, ids, _ := strings.Cut(filter, ":")
	switch kind {
	case "scope":
		return gocbcore.OpenStreamOptions{FilterOptions: &gocbcore.OpenStreamFilterOptions{ScopeID: number(ids)}}
	case "collections":
		wanted := &gocbcore.OpenStreamFilterOptions{}
		for _, id := range strings.Split(ids, ",") {
			wanted.CollectionIDs = append(wanted.CollectionIDs, number(id))
		}
		return gocbcore.OpenStreamOptions{FilterOptions: wanted}
	}
	return gocbcore.OpenStreamOptions{}
}

func number(hexadecimal string) uint32 {
	return uint32(must(strconv.ParseUint(hexadecimal, 16, 32)))
}

// open opens the stream of a vbucket where the journal ends, as often as it takes.
func (s *stream) open(opened func()) {
	for {
		at := s.consumer.journal.position(s.vb)
		err := s.tryOpen(at)
		var rollback gocbcore.DCPRollbackError
		switch {
		case err == nil:
			if opened != nil {
				opened()
			}
			return
		case errors.As(err, &rollback):
			seqno := uint64(rollback.SeqNo)
			s.consumer.journal.moved("rollback", s.vb, position{at.uuid, seqno, seqno, seqno})
		default:
			fmt.Fprintf(os.Stderr, "vb %d at %+v: %v\n", s.vb, at, err)
			time.Sleep(retryAfter)
		}
	}
}

func (s *stream) tryOpen(at position) error {
	answer := make(chan error, 1)
	_, err := s.consumer.agent.OpenStream(s.vb, memd.DcpStreamAddFlagActiveOnly, gocbcore.VbUUID(at.uuid),
		gocbcore.SeqNo(at.seqno), math.MaxUint64, gocbcore.SeqNo(at.start), gocbcore.SeqNo(at.end), s,
		s.consumer.options, func(entries []gocbcore.FailoverEntry, err error) {
			// Called before anything of the stream is read from the connection.
			if err == nil {
				s.opened(entries, at)
			}
			answer <- err
		})
	if err != nil {
		return err
	}
	return <-answer
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](result T, err error) T {
	ok(err)
	return result
}
