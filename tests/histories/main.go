// Histories of a real cluster: five nodes and an etcd, clients, faults at random, and checkers.
//
//	histories --server PATH [--rounds N] [--seed N] [--from ROUND] [--directory DIR] [--json]
//	          [--plant MUTANT] [--loopback] [--hold] [--check FILE]
//
// Goroutines with gocb read, write, compare-and-swap and count on registers at every durability
// level, and write plainly on other keys. Readers that never follow the map ask each node directly.
// A round has one to five faults; then everything heals, and all copies have to become equal.
// Porcupine checks each register's history for linearizability, and the failover tables say which
// plain writes have to be there. Then mutants are planted into the recorded histories, and each has
// to be found. A seed and a round decide the faults, not the timing of what they hit.
//
// An interrupt ends the run after its round.
//
// Nodes have network namespaces, which need root; elsewhere they are on loopback, and cables are not
// cut. Clocks are right. After a violation the directory keeps the
// histories, Porcupine's pages, the nodes' logs and what they said of themselves.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	server, directory, plant, check string
	rounds, from                    int
	seed                            uint64
	isJSON, isLoopback, isHeld      bool
	abilities                       abilities
}

func parse() options {
	var o options
	flag.StringVar(&o.server, "server", "", "the oribi binary")
	flag.StringVar(&o.directory, "directory", "", "where data and logs go; a temporary one if empty")
	flag.IntVar(&o.rounds, "rounds", 20, "rounds of faults")
	flag.IntVar(&o.from, "from", 0, "the first round, for a plan that is to be repeated")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "decides the faults")
	flag.BoolVar(&o.isJSON, "json", false, "print the result as JSON")
	flag.BoolVar(&o.isLoopback, "loopback", false, "no network namespaces: only processes fail")
	flag.BoolVar(&o.isHeld, "hold", false, "after a violation leave everything as it is until an interrupt")
	flag.StringVar(&o.plant, "plant", "", "plant a mutant into the recorded histories: "+strings.Join(mutantNames(), ", "))
	flag.StringVar(&o.check, "check", "", "only check the histories of a file")
	flag.Parse()
	return o
}

func mutantNames() (names []string) {
	for _, m := range registerMutants {
		names = append(names, m.name)
	}
	for _, m := range plainMutants {
		names = append(names, m.name)
	}
	return names
}

func main() {
	o := parse()
	if o.check != "" {
		os.Exit(checkFile(o.check))
	}
	if o.plant != "" && !slices.Contains(mutantNames(), o.plant) {
		fail("there is no mutant %q", o.plant)
	}
	server, err := filepath.Abs(o.server)
	if o.server == "" || err != nil {
		fail("--server names the oribi binary")
	}
	o.abilities.cables = !o.isLoopback && enterOwnNetwork()
	if !o.abilities.cables {
		fmt.Fprintln(os.Stderr, "SKIPPED: network namespaces (run as root with unshare, nsenter and ip): no cable is cut")
	}
	o.server = server
	isTemporary := o.directory == ""
	if isTemporary {
		if o.directory, err = os.MkdirTemp("", "oribi-histories-"); err != nil {
			fail("%v", err)
		}
	} else {
		o.directory = filepath.Join(o.directory, fmt.Sprintf("seed-%d-from-%d", o.seed, o.from))
		_ = os.RemoveAll(o.directory)
		if err := os.MkdirAll(o.directory, 0o755); err != nil {
			fail("%v", err)
		}
		o.directory, _ = filepath.Abs(o.directory)
	}
	if o.abilities.disks = buildSlowDisk(o.directory); !o.abilities.disks {
		fmt.Fprintln(os.Stderr, "SKIPPED: slow disks (a C compiler, cc)")
	}
	r, err := newRun(o)
	if err != nil {
		fail("%v; logs are in %s", err, o.directory)
	}
	r.rounds()
	if o.isHeld && len(r.report.Violations) > 0 {
		fmt.Fprintf(os.Stderr, "holding; this is process %d\n", os.Getpid())
		interrupt := make(chan os.Signal, 1)
		signal.Notify(interrupt, os.Interrupt, syscall.SIGTERM)
		<-interrupt
	}
	r.cluster.end()
	r.report.print(o.isJSON)
	if len(r.report.Violations) > 0 {
		os.Exit(1)
	}
	_ = os.RemoveAll(o.directory)
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(2)
}

// checkFile checks histories that a run has kept.
func checkFile(path string) int {
	text, err := os.ReadFile(path)
	var all []*history
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		fail("%v", err)
	}
	code := 0
	for _, h := range all {
		page := fmt.Sprintf("%s.%s-%s.html", path, h.Bucket, h.Key)
		switch check(h.Operations, checkMax, page) {
		case violated:
			fmt.Printf("%s of %s is not linearizable: %s\n", h.Key, h.Bucket, page)
			code = 1
		case undecided:
			fmt.Printf("%s of %s: not decided within %v\n", h.Key, h.Bucket, checkMax)
		}
		if conflict := casConflict(h.Operations); conflict != "" {
			fmt.Printf("%s of %s: %s\n", h.Key, h.Bucket, conflict)
			code = 1
		}
	}
	fmt.Printf("%d histories checked\n", len(all))
	return code
}
