package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// report is the outcome of a run.
type report struct {
	Seed       uint64         `json:"seed"`
	From       int            `json:"from"`
	Rounds     int            `json:"rounds"`
	Network    string         `json:"network"`
	Seconds    float64        `json:"seconds"`
	Faults     map[string]int `json:"faults"`
	Operations map[string]int `json:"operations"`
	Keys       int            `json:"keys_checked"`
	PlainKeys  int            `json:"plain_keys_checked"`
	Undecided  int            `json:"undecided"`
	// In seconds: the longest time in which a vbucket served nothing, and from the end of the last
	// fault until everything is served, and until all copies are equal and on disk.
	WithoutService float64 `json:"without_service_s"`
	Served         float64 `json:"served_again_s"`
	Converged      float64 `json:"converged_s"`
	// Clients that had locked themselves up, or seemed to.
	ClientsReplaced int      `json:"clients_replaced"`
	MutantsFound    int      `json:"mutants_found"`
	Mutants         int      `json:"mutants"`
	Violations      []string `json:"violations"`
	Directory       string   `json:"directory,omitempty"`
}

func (r *report) print(isJSON bool) {
	if isJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(r)
		return
	}
	fmt.Printf("\nseed %d, %d rounds from %d in %.0f s, %s\n", r.Seed, r.Rounds, r.From, r.Seconds, r.Network)
	table("faults", r.Faults)
	table("operations", r.Operations)
	fmt.Printf("\n%d registers and %d plain keys checked, %d not decided within %v\n",
		r.Keys, r.PlainKeys, r.Undecided, checkMax)
	fmt.Printf("longest time of a vbucket without service %.1f s, after the last fault %.1f s, until copies were equal %.1f s\n",
		r.WithoutService, r.Served, r.Converged)
	fmt.Printf("times that stuck clients were replaced: %d\n", r.ClientsReplaced)
	fmt.Printf("mutants found: %d of %d\n", r.MutantsFound, r.Mutants)
	for _, violation := range r.Violations {
		fmt.Printf("VIOLATION %s\n", violation)
	}
	if r.Directory != "" {
		fmt.Printf("histories and logs are in %s; to repeat the faults: --seed %d --from %d\n",
			r.Directory, r.Seed, r.From)
	}
}

func table(name string, counts map[string]int) {
	total := 0
	for _, count := range counts {
		total += count
	}
	fmt.Printf("\n%8d  %s\n", total, name)
	var names []string
	for each := range counts {
		names = append(names, each)
	}
	slices.Sort(names)
	for _, each := range names {
		fmt.Printf("%8d    %s\n", counts[each], each)
	}
}

func longer(seconds *float64, than time.Duration) { *seconds = max(*seconds, than.Seconds()) }
