package main

import (
	"fmt"
	"slices"

	"github.com/couchbase/gocb/v2"
)

// scans over keys: ranges, prefixes and samples, that wait for what was written before them.
func (p *program) scans() string {
	var keys []string
	written := gocb.NewMutationState()
	cas := map[string]gocb.Cas{}
	for number := range 100 {
		key := fmt.Sprintf("scan-%03d", number)
		result := must(p.collection.Upsert(key, key, nil))
		written.Add(*result.MutationToken())
		keys, cas[key] = append(keys, key), result.Cas()
	}
	found := func(scan gocb.ScanType, idsOnly bool) (ids []string) {
		result := must(p.collection.Scan(scan, &gocb.ScanOptions{IDsOnly: idsOnly, ConsistentWith: written}))
		for each := result.Next(); each != nil; each = result.Next() {
			ids = append(ids, each.ID())
			if !idsOnly {
				var value string
				ok(each.Content(&value))
				equal(value, each.ID())
				equal(each.Cas(), cas[each.ID()])
			}
		}
		ok(result.Err())
		slices.Sort(ids)
		return ids
	}
	equal(found(gocb.NewRangeScanForPrefix("scan-"), true), keys)
	some := gocb.RangeScan{From: &gocb.ScanTerm{Term: "scan-010"}, To: &gocb.ScanTerm{Term: "scan-020", Exclusive: true}}
	equal(found(some, false), keys[10:20])
	equal(len(slices.Compact(found(gocb.SamplingScan{Limit: 10, Seed: 1}, true))), 10)
	equal(len(found(gocb.NewRangeScanForPrefix("no-such-prefix"), true)), 0)
	return ""
}
