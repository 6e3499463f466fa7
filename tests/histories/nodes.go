package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startMax = 60 * time.Second
	stopMax  = 60 * time.Second
	leaseS   = 3
	// Other copies are promoted so long after the end of a lease.
	failoverMs = 500
)

// process is a server that is killed and paused.
type process struct {
	name    string
	command []string
	log     string
	running *exec.Cmd
	// Closed once it has ended.
	ended chan struct{}
	// Whether its end is expected.
	isAsked bool
}

func (p *process) start(environment ...string) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), strings.Join(p.command, " "))
	running := exec.Command(p.command[0], p.command[1:]...)
	running.Stdout, running.Stderr = log, log
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ORIBI_") {
			running.Env = append(running.Env, variable)
		}
	}
	running.Env = append(append(running.Env, "NO_COLOR=1"), environment...)
	// An interrupt of this program ends its run after the round, and the nodes then.
	running.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := running.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = running.Wait()
		close(ended)
	}()
	p.running, p.ended, p.isAsked = running, ended, false
	return nil
}

func (p *process) signal(signal syscall.Signal) error { return p.running.Process.Signal(signal) }

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) kill() error {
	p.isAsked = true
	err := p.signal(syscall.SIGKILL)
	<-p.ended
	return err
}

// waitForEnd is for one that was asked to end by SIGTERM.
func (p *process) waitForEnd() error {
	select {
	case <-p.ended:
	case <-time.After(stopMax):
		return fmt.Errorf("%s ignores SIGTERM for %v", p.name, stopMax)
	}
	if code := p.running.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM", p.name, code)
	}
	return nil
}

// node is one of the cluster.
type node struct {
	process
	host            *host
	address         string
	port, adminPort int
	ready           string
	// Beginning of the names of files that slow its disk down, if that can be done.
	disk string
}

func (n *node) kv() string { return fmt.Sprintf("%s:%d", n.address, n.port) }

func (n *node) start() error {
	_ = os.Remove(n.ready)
	if n.disk == "" {
		return n.process.start()
	}
	return n.process.start("LD_PRELOAD="+slowDisk(filepath.Dir(n.disk)), "HISTORIES_DISK="+n.disk)
}

//go:embed native/slow_disk.c
var slowDiskSource string

func slowDisk(directory string) string { return filepath.Join(directory, "slow_disk.so") }

func (n *node) hasSlowDisk() bool {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", n.running.Process.Pid))
	return err == nil && strings.Contains(string(maps), "slow_disk.so")
}

// buildSlowDisk says whether disks can be slowed down, which needs a C compiler.
func buildSlowDisk(directory string) bool {
	source := filepath.Join(directory, "slow_disk.c")
	if os.WriteFile(source, []byte(slowDiskSource), 0o644) != nil {
		return false
	}
	return exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", slowDisk(directory), source, "-ldl").Run() == nil
}

func (n *node) isReady() bool {
	text, err := os.ReadFile(n.ready)
	var ready struct{ Pid int }
	return err == nil && json.Unmarshal(text, &ready) == nil && ready.Pid == n.running.Process.Pid
}

func newNode(o options, name string, address string, h *host, etcd, secret string) (*node, error) {
	n := &node{host: h, address: address, port: 11210, adminPort: 8091}
	if h == nil {
		var err error
		if n.port, err = freePort(address); err != nil {
			return nil, err
		}
		if n.adminPort, err = freePort(address); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(o.directory, name)
	n.name, n.log, n.ready = name, filepath.Join(o.directory, name+".log"), filepath.Join(o.directory, name+".ready")
	n.command = h.command(o.server, "serve", "--data-dir", data, "--listen", address,
		"--port", fmt.Sprint(n.port), "--admin-port", fmt.Sprint(n.adminPort), "--query-port", "0",
		"--ready-file", n.ready, "--node-name", name, "--cluster-etcd", etcd, "--cluster-secret-file", secret,
		"--cluster-lease-s", fmt.Sprint(leaseS), "--cluster-failover-ms", fmt.Sprint(failoverMs),
		"--memory-quota-mib", "64", "--workers", "1")
	if o.abilities.disks {
		n.disk = filepath.Join(o.directory, name+".disk")
	}
	add := exec.Command(o.server, "user", "add", user, "--role", "admin", "--data-dir", data)
	add.Env = append(os.Environ(), "ORIBI_PASSWORD="+password)
	if output, err := add.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a user cannot be added: %w: %s", err, output)
	}
	return n, nil
}

func newEtcd(o options, address string) (*process, string, error) {
	client, err := freePort(address)
	if err != nil {
		return nil, "", err
	}
	peer, err := freePort(address)
	if err != nil {
		return nil, "", err
	}
	url, peerURL := fmt.Sprintf("http://%s:%d", address, client), fmt.Sprintf("http://%s:%d", address, peer)
	return &process{
		name: "etcd",
		log:  filepath.Join(o.directory, "etcd.log"),
		// Nothing crashes the machine.
		command: []string{"etcd", "--name", "only", "--unsafe-no-fsync", "--log-level", "warn",
			"--data-dir", filepath.Join(o.directory, "etcd"),
			"--listen-client-urls", url, "--advertise-client-urls", url,
			"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL,
			"--initial-cluster", "only=" + peerURL},
	}, url, nil
}

// freePort is one that no process uses, below those that the kernel gives to clients.
func freePort(address string) (int, error) {
	for port := 15000 + os.Getpid()%8000; port < 31000; port++ {
		if isTaken[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port))
		if err == nil {
			isTaken[port] = true
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no port of %s is free", address)
}

var isTaken = map[int]bool{}
