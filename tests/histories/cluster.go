package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	user, password = "Administrator", "password"
	nodesOfCluster = 5
	vbuckets       = 16
	bucketQuotaMB  = "100"
)

var nodeNames = []string{"one", "two", "three", "four", "five"}

// cluster is an etcd and nodes on their hosts, or on loopback.
type cluster struct {
	etcd  *process
	nodes []*node
	// Where this program and etcd are.
	self *host
}

func startCluster(o options) (*cluster, error) {
	secret := filepath.Join(o.directory, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("x", 40)), 0o600); err != nil {
		return nil, err
	}
	address := "127.0.0.1"
	if o.abilities.cables {
		if err := setUpNetwork(); err != nil {
			return nil, err
		}
		address = etcdAddress
	}
	etcd, etcdURL, err := newEtcd(o, address)
	if err != nil {
		return nil, err
	}
	c := &cluster{etcd: etcd, self: &host{blocked: map[string]int{}}}
	if err := etcd.start(); err != nil {
		return nil, err
	}
	for number, name := range nodeNames {
		var h *host
		if o.abilities.cables {
			if h, err = newHost(11 + number); err != nil {
				return nil, err
			}
			address = h.address
		}
		n, err := newNode(o, name, address, h, etcdURL, secret)
		if err != nil {
			return nil, err
		}
		if err := n.start(); err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, n)
	}
	if !poll(startMax, c.isFormed) {
		return nil, fmt.Errorf("the nodes form no cluster within %v", startMax)
	}
	return c, nil
}

// end kills all processes.
func (c *cluster) end() {
	for _, n := range c.nodes {
		if !n.hasEnded() {
			_ = n.kill()
		}
		if n.host != nil {
			_ = n.host.input.Close()
		}
	}
	_ = c.etcd.kill()
}

// ended names a node that ended without being asked.
func (c *cluster) ended() string {
	for _, n := range c.nodes {
		if n.hasEnded() && !n.isAsked {
			return fmt.Sprintf("node %s ended by itself: %v", n.name, n.running.ProcessState)
		}
	}
	return ""
}

func (c *cluster) isFormed() bool {
	for _, n := range c.nodes {
		var services struct{ NodesExt []any }
		if !n.isReady() || n.get("/pools/default/nodeServices", &services) != nil {
			return false
		}
		if len(services.NodesExt) != nodesOfCluster {
			return false
		}
	}
	return true
}

var admin = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get reads JSON of a node's admin HTTP.
func (n *node) get(path string, into any) error {
	text, err := n.ask(http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (n *node) ask(method, path string, form url.Values) ([]byte, error) {
	address := fmt.Sprintf("http://%s:%d%s", n.address, n.adminPort, path)
	request, err := http.NewRequest(method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.SetBasicAuth(user, password)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := admin.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return text, err
}

func (c *cluster) createBucket(name string, replicas int) error {
	form := url.Values{
		"name": {name}, "ramQuotaMB": {bucketQuotaMB}, "numVBuckets": {fmt.Sprint(vbuckets)},
		"replicaNumber": {fmt.Sprint(replicas)},
	}
	_, err := c.nodes[0].ask(http.MethodPost, "/pools/default/buckets", form)
	return err
}

// chains returns for each vbucket the nodes that have it, the active one first, as a node shows it.
func (c *cluster) chains(from *node, bucket string) ([][]*node, error) {
	var shown struct {
		VBucketServerMap struct {
			ServerList []string
			VBucketMap [][]int
		}
	}
	if err := from.get("/pools/default/buckets/"+bucket, &shown); err != nil {
		return nil, err
	}
	servers := make([]*node, len(shown.VBucketServerMap.ServerList))
	for index, address := range shown.VBucketServerMap.ServerList {
		for _, n := range c.nodes {
			if n.kv() == address {
				servers[index] = n
			}
		}
	}
	var chains [][]*node
	for vbucket, places := range shown.VBucketServerMap.VBucketMap {
		var chain []*node
		for _, place := range places {
			if place < 0 || place >= len(servers) || servers[place] == nil {
				return nil, fmt.Errorf("vbucket %d of %s: the map of %s shows %v", vbucket, bucket, from.name, places)
			}
			chain = append(chain, servers[place])
		}
		chains = append(chains, chain)
	}
	if len(chains) != vbuckets {
		return nil, fmt.Errorf("%s shows %d vbuckets of %s", from.name, len(chains), bucket)
	}
	return chains, nil
}

// isConverged says what is missing, or nothing: every node shows the same whole chains, and all
// copies have the same history up to the same seqno, on disk.
func (c *cluster) isConverged(k *keys) error {
	for _, n := range c.nodes {
		if !n.isReady() {
			return fmt.Errorf("node %s is not ready", n.name)
		}
	}
	chains, err := c.chains(c.nodes[0], k.bucket)
	if err != nil {
		return err
	}
	for _, n := range c.nodes[1:] {
		others, err := c.chains(n, k.bucket)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(chains, others, slices.Equal[[]*node]) {
			return fmt.Errorf("nodes one and %s show different maps of %s", n.name, k.bucket)
		}
	}
	details := map[*node]map[string]string{}
	for _, n := range c.nodes {
		if details[n], err = stats(n.kv(), k.bucket, "vbucket-details"); err != nil {
			return fmt.Errorf("statistics of %s: %w", n.name, err)
		}
	}
	for vbucket, chain := range chains {
		if len(chain) != k.replicas+1 {
			return fmt.Errorf("vbucket %d of %s has %d copies", vbucket, k.bucket, len(chain))
		}
		figure := func(n *node, name string) string { return details[n][fmt.Sprintf("vb_%d:%s", vbucket, name)] }
		high := figure(chain[0], "high_seqno")
		for place, n := range chain {
			wrong := func(name, value, wanted string) error {
				return fmt.Errorf("vbucket %d of %s at %s (place %d): %s is %q, not %q",
					vbucket, k.bucket, n.name, place, name, value, wanted)
			}
			wanted := map[string]string{
				"high_seqno": high, "persistence_seqno": high, "num_prepared_sync_writes": "0",
				"num_items": figure(chain[0], "num_items"), "uuid": figure(chain[0], "uuid"),
			}
			for name, value := range wanted {
				if found := figure(n, name); found != value || found == "" {
					return wrong(name, found, value)
				}
			}
		}
	}
	return nil
}

// failoverTables returns the failover table of every vbucket, from the node that serves it.
func (c *cluster) failoverTables(k *keys) ([][]historyEntry, error) {
	chains, err := c.chains(c.nodes[0], k.bucket)
	if err != nil {
		return nil, err
	}
	found := map[*node]map[string]string{}
	for _, n := range c.nodes {
		if found[n], err = stats(n.kv(), k.bucket, "failovers"); err != nil {
			return nil, err
		}
	}
	tables := make([][]historyEntry, vbuckets)
	for vbucket, chain := range chains {
		figure := func(name string) uint64 {
			number, _ := strconv.ParseUint(found[chain[0]][fmt.Sprintf("vb_%d:%s", vbucket, name)], 10, 64)
			return number
		}
		for index := range figure("num_entries") {
			tables[vbucket] = append(tables[vbucket],
				historyEntry{figure(fmt.Sprintf("%d:id", index)), figure(fmt.Sprintf("%d:seq", index))})
		}
		if len(tables[vbucket]) == 0 {
			return nil, fmt.Errorf("vbucket %d of %s has no failover table at %s", vbucket, k.bucket, chain[0].name)
		}
	}
	return tables, nil
}

// describe writes what the nodes say of themselves, for a person who looks for a cause.
func (c *cluster) describe(buckets []*keys, directory string) {
	for _, n := range c.nodes {
		var text strings.Builder
		status, err := n.ask(http.MethodGet, "/node/cluster", nil)
		fmt.Fprintf(&text, "/node/cluster: %v\n%s\n", err, status)
		for _, k := range buckets {
			shown, err := n.ask(http.MethodGet, "/pools/default/buckets/"+k.bucket, nil)
			fmt.Fprintf(&text, "\n%s: %v\n%s\n", k.bucket, err, shown)
			for _, group := range []string{"vbucket-details", "failovers"} {
				figures, err := stats(n.kv(), k.bucket, group)
				fmt.Fprintf(&text, "\n%s of %s: %v\n", group, k.bucket, err)
				var names []string
				for name := range figures {
					names = append(names, name)
				}
				slices.Sort(names)
				for _, name := range names {
					fmt.Fprintf(&text, "%s %s\n", name, figures[name])
				}
			}
		}
		_ = os.WriteFile(filepath.Join(directory, n.name+".state"), []byte(text.String()), 0o644)
	}
}
