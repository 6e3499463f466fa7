package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A private network, as crates/testkit/src/network.rs makes one: hosts behind a bridge, each a
// network namespace. Everything runs in a namespace of this program's own, so nothing is left on
// the machine however it ends.

const (
	insideVariable = "ORIBI_HISTORIES_INSIDE"
	bridge         = "bridge"
	// Without its own address a bridge has the lowest of its ports', which a cut would change.
	bridgeAddress = "02:00:00:00:00:01"
	clientAddress = "10.231.0.1"
	etcdAddress   = "10.231.0.3"
)

// Processes end with the thread that started them, and that has to be the main one.
func init() { runtime.LockOSThread() }

// enterOwnNetwork runs the program again in its own network, and ends as that run does. Inside of it
// the result is true, where namespaces cannot be made false.
func enterOwnNetwork() bool {
	if os.Getenv(insideVariable) != "" {
		return true
	}
	probe := exec.Command("unshare", "--net", "--", "ip", "link", "add", "name", "probe", "type", "bridge")
	if probe.Run() != nil {
		return false
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), insideVariable+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	// The run inside ends after its round.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	_ = again.Run()
	os.Exit(again.ProcessState.ExitCode())
	return false
}

func setUpNetwork() error {
	commands := [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "name", bridge, "address", bridgeAddress, "type", "bridge"},
		{"address", "add", clientAddress + "/24", "dev", bridge},
		{"address", "add", etcdAddress + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
	}
	for _, arguments := range commands {
		if err := run("ip", arguments...); err != nil {
			return err
		}
	}
	return nil
}

// host is a machine of the network. The one without a holder is this program's, with etcd.
type host struct {
	holder  *exec.Cmd
	input   io.WriteCloser
	port    string
	address string
	// How many faults block the route to an address.
	blocked map[string]int
}

func newHost(number int) (*host, error) {
	h := &host{
		port: fmt.Sprintf("port%d", number), address: fmt.Sprintf("10.231.0.%d", number),
		blocked: map[string]int{},
	}
	// It only holds the namespace, and ends with its input.
	h.holder = exec.Command("cat")
	h.holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	var err error
	if h.input, err = h.holder.StdinPipe(); err != nil {
		return nil, err
	}
	if err := h.holder.Start(); err != nil {
		return nil, err
	}
	pid := fmt.Sprint(h.holder.Process.Pid)
	steps := []func() error{
		func() error {
			return run("ip", "link", "add", h.port, "type", "veth", "peer", "name", "net", "netns", pid)
		},
		func() error { return run("ip", "link", "set", h.port, "up") },
		func() error { return h.ip("link", "set", "lo", "up") },
		func() error { return h.ip("address", "add", h.address+"/24", "dev", "net") },
		func() error { return h.ip("link", "set", "net", "up") },
		h.connect,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// command begins a command line that runs on this host.
func (h *host) command(arguments ...string) []string {
	if h == nil || h.holder == nil {
		return arguments
	}
	namespace := fmt.Sprintf("--net=/proc/%d/ns/net", h.holder.Process.Pid)
	return append([]string{"nsenter", namespace, "--"}, arguments...)
}

func (h *host) ip(arguments ...string) error {
	line := h.command(append([]string{"ip"}, arguments...)...)
	return run(line[0], line[1:]...)
}

func (h *host) connect() error { return run("ip", "link", "set", h.port, "master", bridge) }

// cut loses all packets in both directions; no connection is closed.
func (h *host) cut() error { return run("ip", "link", "set", h.port, "nomaster") }

// lose blocks the route to an address: the host sends nothing to it from here on.
func (h *host) lose(address string) error {
	h.blocked[address]++
	if h.blocked[address] > 1 {
		return nil
	}
	return h.ip("route", "add", "blackhole", address)
}

func (h *host) find(address string) error {
	h.blocked[address]--
	if h.blocked[address] > 0 {
		return nil
	}
	return h.ip("route", "delete", "blackhole", address)
}

func run(name string, arguments ...string) error {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, output)
	}
	return nil
}

// poll repeats a question until the answer is yes, or the time is over.
func poll(limit time.Duration, question func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if question() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
