// go get github.com/couchbase/gocb/v2
package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/couchbase/gocb/v2"
)

func main() {
	address := cmp.Or(os.Getenv("ORIBI_CONNSTR"), "couchbase://127.0.0.1")
	cluster, _ := gocb.Connect(address, gocb.ClusterOptions{Username: "Administrator", Password: "password"})
	documents := cluster.Bucket("default").DefaultCollection()

	documents.Upsert("greeting", map[string]string{"text": "Hello from Go"}, nil)
	found, err := documents.Get("greeting", nil)
	if err != nil {
		panic(err)
	}
	var greeting map[string]string
	found.Content(&greeting)
	fmt.Println(greeting["text"])
}
