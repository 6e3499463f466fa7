package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"
)

// fault is a temporary one, of one node, of two that do not hear each other, or of etcd.
type fault struct {
	Kind  string        `json:"kind"`
	Node  int           `json:"node"`
	Other int           `json:"other"`
	At    time.Duration `json:"at"`
	For   time.Duration `json:"for"`
}

const (
	killed  = "kill"
	stopped = "stop"
	// Shorter than the lease, and longer than it and the time until others are promoted.
	paused     = "pause"
	pausedLong = "long pause"
	// The cable, the way to one node in both directions, the way to other nodes and etcd but not
	// the one to clients.
	cutOff   = "cut cable"
	cutPair  = "cut pair"
	apart    = "apart"
	mute     = "mute"
	mutePeer = "mute to a node"
	muteEtcd = "mute to etcd"
	// It hears nothing and can send.
	deaf       = "deaf"
	etcdPaused = "etcd paused"
	// Each sync takes long, or none ends.
	slowed  = "slow disk"
	stalled = "stalled disk"
)

// abilities are those of the machine: network namespaces, and a C compiler.
type abilities struct{ cables, disks bool }

func (a abilities) String() string {
	text := "nodes in network namespaces"
	if !a.cables {
		text = "nodes on loopback, no cable is cut"
	}
	if !a.disks {
		text += ", no disk is slow"
	}
	return text
}

var (
	ofProcesses = []string{killed, stopped, paused, pausedLong, etcdPaused}
	ofDisks     = []string{slowed, stalled}
	ofCables    = []string{cutOff, cutPair, apart, mute, mutePeer, muteEtcd, deaf}
)

// plan is what happens in a round.
type plan struct {
	Round  int     `json:"round"`
	Faults []fault `json:"faults"`
	// Several memories are lost, so only what is persisted by a majority is promised.
	LosesMemories bool `json:"loses_memories"`
}

// planned is the same for a seed and a round. In a round one node at most is killed, or many.
func planned(seed uint64, round int, able abilities) plan {
	random := rand.New(rand.NewPCG(seed, uint64(round)))
	p := plan{Round: round}
	shape := random.IntN(20)
	if shape >= 18 {
		p.LosesMemories = true
		count := 2 + random.IntN(nodesOfCluster-1)
		for _, node := range random.Perm(nodesOfCluster)[:count] {
			at := time.Duration(random.IntN(400)) * time.Millisecond
			p.Faults = append(p.Faults, fault{Kind: killed, Node: node, At: at, For: duration(random, killed)})
		}
		return p
	}
	kinds := slices.Clone(ofProcesses)
	if able.disks {
		kinds = append(kinds, ofDisks...)
	}
	if able.cables {
		kinds = append(kinds, ofCables...)
	}
	count := map[bool]int{true: 1, false: 2 + random.IntN(2)}[shape < 9]
	isSeries := shape >= 15
	nodes, victim := random.Perm(nodesOfCluster), -1
	at := time.Duration(0)
	for number := range count {
		f := fault{Kind: kinds[random.IntN(len(kinds))], Node: nodes[number], At: at}
		f.Other = nodes[(number+1+random.IntN(nodesOfCluster-1))%nodesOfCluster]
		if isSeries {
			f.Node = random.IntN(nodesOfCluster)
			f.Other = (f.Node + 1 + random.IntN(nodesOfCluster-1)) % nodesOfCluster
		}
		if f.Kind == killed {
			if victim >= 0 && victim != f.Node {
				f.Kind = pausedLong
			} else {
				victim = f.Node
			}
		}
		if f.Kind == etcdPaused && slices.ContainsFunc(p.Faults, func(o fault) bool { return o.Kind == etcdPaused }) {
			f.Kind = paused
		}
		f.For = duration(random, f.Kind)
		p.Faults = append(p.Faults, f)
		if isSeries {
			at += f.For + time.Duration(random.IntN(1500))*time.Millisecond
		} else {
			at += time.Duration(random.IntN(2500)) * time.Millisecond
		}
	}
	return p
}

func duration(random *rand.Rand, kind string) time.Duration {
	between := func(from, to int) time.Duration {
		return time.Duration(from+random.IntN(to-from)) * time.Millisecond
	}
	const lease = leaseS * 1000
	switch {
	case kind == killed || kind == stopped:
		return between(50, lease+3000)
	case kind == paused:
		return between(100, lease-1000)
	case kind == pausedLong:
		return between(lease+failoverMs, lease+4000)
	case random.IntN(3) == 0:
		return between(200, lease)
	default:
		return between(lease, lease+4000)
	}
}

func (p plan) String() string {
	var parts []string
	for _, f := range p.Faults {
		part := fmt.Sprintf("%s %s", f.Kind, nodeNames[f.Node])
		if f.Kind == cutPair || f.Kind == mutePeer {
			part += " and " + nodeNames[f.Other]
		}
		if f.Kind == etcdPaused {
			part = f.Kind
		}
		parts = append(parts, fmt.Sprintf("%s for %.1f s", part, f.For.Seconds()))
	}
	return strings.Join(parts, ", ")
}

// strike begins a fault.
func (c *cluster) strike(f fault) error {
	n := c.nodes[f.Node]
	switch f.Kind {
	case killed:
		return n.kill()
	case stopped:
		n.isAsked = true
		return n.signal(syscall.SIGTERM)
	case paused, pausedLong:
		return n.signal(syscall.SIGSTOP)
	case etcdPaused:
		return c.etcd.signal(syscall.SIGSTOP)
	case slowed, stalled:
		return os.WriteFile(n.diskFile(f), nil, 0o644)
	case cutOff:
		return n.host.cut()
	default:
		return c.routes(f, (*host).lose)
	}
}

// heal ends it.
func (c *cluster) heal(f fault) error {
	n := c.nodes[f.Node]
	switch f.Kind {
	case killed:
		return n.start()
	case stopped:
		if err := n.waitForEnd(); err != nil {
			return err
		}
		return n.start()
	case paused, pausedLong:
		return n.signal(syscall.SIGCONT)
	case etcdPaused:
		return c.etcd.signal(syscall.SIGCONT)
	case slowed, stalled:
		return os.Remove(n.diskFile(f))
	case cutOff:
		return n.host.connect()
	default:
		return c.routes(f, (*host).find)
	}
}

func (n *node) diskFile(f fault) string {
	return n.disk + map[string]string{slowed: ".slow", stalled: ".stalled"}[f.Kind]
}

// routes changes all routes of a fault of cables.
func (c *cluster) routes(f fault, change func(*host, string) error) error {
	own := c.nodes[f.Node]
	peers := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return n == own })
	if f.Kind == mutePeer || f.Kind == cutPair {
		peers = []*node{c.nodes[f.Other]}
	}
	isMute := f.Kind == mute || f.Kind == apart || f.Kind == mutePeer || f.Kind == cutPair
	isDeaf := f.Kind == deaf || f.Kind == apart || f.Kind == cutPair
	for _, peer := range peers {
		if isMute {
			if err := change(own.host, peer.address); err != nil {
				return err
			}
		}
		if isDeaf {
			if err := change(peer.host, own.address); err != nil {
				return err
			}
		}
	}
	if f.Kind == mute || f.Kind == apart || f.Kind == muteEtcd {
		return change(own.host, etcdAddress)
	}
	if f.Kind == deaf {
		return change(c.self, own.address)
	}
	return nil
}

// event is the begin or the end of a fault.
type event struct {
	at   time.Duration
	isOn bool
	fault
}

func (p plan) events() []event {
	var all []event
	for _, f := range p.Faults {
		all = append(all, event{f.At, true, f}, event{f.At + f.For, false, f})
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	return all
}
