// go get github.com/testcontainers/testcontainers-go github.com/couchbase/gocb/v2
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/couchbase/gocb/v2"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

func main() {
	ctx := context.Background()
	oribi, err := testcontainers.Run(ctx, "oribi:latest",
		testcontainers.WithEnv(map[string]string{
			"ORIBI_ADMIN_USER": "ci", "ORIBI_ADMIN_PASSWORD": "secret-ci", "ORIBI_INIT": "/init.toml"}),
		testcontainers.WithFiles(testcontainers.ContainerFile{
			HostFilePath: "init.toml", ContainerFilePath: "/init.toml", FileMode: 0o644}),
		testcontainers.WithExposedPorts("11210/tcp", "8091/tcp"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/healthz").WithPort("8091/tcp")))
	defer testcontainers.TerminateContainer(oribi)
	check(err)
	host, _ := oribi.Host(ctx)
	kv, _ := oribi.MappedPort(ctx, "11210/tcp")
	mgmt, _ := oribi.MappedPort(ctx, "8091/tcp")
	form := url.Values{"hostname": {host}, "kv": {kv.Port()}, "mgmt": {mgmt.Port()}}
	request, _ := http.NewRequest("PUT", "http://"+net.JoinHostPort(host, mgmt.Port())+
		"/node/controller/setupAlternateAddresses/external", strings.NewReader(form.Encode()))
	request.SetBasicAuth("ci", "secret-ci")
	_, err = http.DefaultClient.Do(request)
	check(err)
	cluster, err := gocb.Connect("couchbase://"+net.JoinHostPort(host, kv.Port()),
		gocb.ClusterOptions{Username: "app", Password: "secret-app"})
	check(err)
	found, err := cluster.Bucket("shop").Scope("eu").Collection("orders").Get("order-1", nil)
	check(err)
	var order struct{ Total int }
	check(found.Content(&order))
	fmt.Println("order-1:", order.Total)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
