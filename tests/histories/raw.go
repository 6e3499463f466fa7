package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"
)

const (
	rawDialMax = 2 * time.Second
	// Requests of a stubborn reader without an answer.
	rawOpenMax = 200
	rawPause   = 60 * time.Millisecond
	// A connection that a cut cable has left without an end is given up some time.
	rawLife = time.Minute
)

// rawConnection asks one node, whatever the map says.
type rawConnection struct {
	stream net.Conn
	frames *memd.Conn
	opaque uint32
}

func dialRaw(address, bucket string) (*rawConnection, error) {
	stream, err := net.DialTimeout("tcp", address, rawDialMax)
	if err != nil {
		return nil, err
	}
	raw := &rawConnection{stream: stream, frames: memd.NewConn(stream)}
	_ = stream.SetDeadline(time.Now().Add(rawDialMax))
	login := []*memd.Packet{
		{Command: memd.CmdSASLAuth, Key: []byte("PLAIN"), Value: []byte("\x00" + user + "\x00" + password)},
		{Command: memd.CmdSelectBucket, Key: []byte(bucket)},
	}
	for _, request := range login {
		answer, err := raw.call(request)
		if err == nil && answer.Status != memd.StatusSuccess {
			err = fmt.Errorf("%v: status %v", request.Command, answer.Status)
		}
		if err != nil {
			_ = stream.Close()
			return nil, err
		}
	}
	_ = stream.SetDeadline(time.Time{})
	return raw, nil
}

func (r *rawConnection) send(request *memd.Packet) error {
	r.opaque++
	request.Magic, request.Opaque = memd.CmdMagicReq, r.opaque
	return r.frames.WritePacket(request)
}

func (r *rawConnection) call(request *memd.Packet) (*memd.Packet, error) {
	if err := r.send(request); err != nil {
		return nil, err
	}
	answer, _, err := r.frames.ReadPacket()
	return answer, err
}

// stats returns a group of statistics of a bucket on a node.
func stats(address, bucket, group string) (map[string]string, error) {
	raw, err := dialRaw(address, bucket)
	if err != nil {
		return nil, err
	}
	defer raw.stream.Close()
	_ = raw.stream.SetDeadline(time.Now().Add(5 * time.Second))
	if err := raw.send(&memd.Packet{Command: memd.CmdStat, Key: []byte(group)}); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for {
		answer, _, err := raw.frames.ReadPacket()
		switch {
		case err != nil:
			return nil, err
		case answer.Status != memd.StatusSuccess:
			return nil, errors.New(answer.Status.String())
		case len(answer.Key) == 0:
			return found, nil
		}
		found[string(answer.Key)] = string(answer.Value)
	}
}

// stubborn reads keys on one node and never follows the map. It sends also while the node does not
// answer: what a paused node finds in its sockets afterwards it must not answer from old memory.
type stubborn struct {
	node   *node
	keys   *keys
	gate   *sync.RWMutex
	counts *counts
	random *rand.Rand
}

// sought is a request without an answer yet.
type sought struct {
	register *history
	plain    *plainKey
	call     int64
}

func (s *stubborn) run() {
	for {
		if raw, err := dialRaw(s.node.kv(), s.keys.bucket); err == nil {
			s.session(raw)
		}
		time.Sleep(rawPause)
	}
}

func (s *stubborn) session(raw *rawConnection) {
	var lock sync.Mutex
	open := map[uint32]sought{}
	go func() {
		defer raw.stream.Close()
		for {
			answer, _, err := raw.frames.ReadPacket()
			if err != nil {
				return
			}
			lock.Lock()
			request, isOpen := open[answer.Opaque]
			delete(open, answer.Opaque)
			lock.Unlock()
			if isOpen {
				s.answered(request, answer)
			}
		}
	}()
	defer raw.stream.Close()
	for end := time.Now().Add(rawLife); time.Now().Before(end); {
		s.gate.RLock()
		request, key := sought{call: now()}, ""
		if s.random.IntN(3) == 0 {
			request.plain = s.keys.anyPlain(s.random)
			key = request.plain.key
		} else {
			request.register = s.keys.anyRegister(s.random)
			key = request.register.Key
		}
		lock.Lock()
		isFull := len(open) >= rawOpenMax
		if !isFull {
			open[raw.opaque+1] = request
		}
		lock.Unlock()
		var err error
		if !isFull {
			_ = raw.stream.SetWriteDeadline(time.Now().Add(rawDialMax))
			err = raw.send(&memd.Packet{Command: memd.CmdGet, Vbucket: vbucketOf(key), Key: []byte(key)})
		}
		s.gate.RUnlock()
		if err != nil {
			return
		}
		time.Sleep(rawPause)
	}
}

func (s *stubborn) answered(request sought, answer *memd.Packet) {
	end, value := now(), int64(0)
	switch answer.Status {
	case memd.StatusSuccess:
		var err error
		if value, err = strconv.ParseInt(string(answer.Value), 10, 64); err != nil {
			value = -1
		}
		s.counts.add("stubborn read: done")
	case memd.StatusKeyNotFound:
		s.counts.add("stubborn read: missing")
	default:
		s.counts.add("stubborn read: not served")
		return
	}
	client := "stubborn at " + s.node.name
	if request.plain != nil {
		request.plain.add(plainOperation{Number: value, Call: request.call, Return: end, Client: client})
		return
	}
	request.register.add(operation{
		Client: client, Kind: read, Value: value, Cas: answer.Cas,
		Call: request.call, Return: end, Outcome: done,
	})
}
