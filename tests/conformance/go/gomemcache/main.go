// gomemcache, which speaks the text protocol: gomemcache PORT
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const tooLarge = 21 << 20

var (
	cache *memcache.Client
	names []string
	steps = map[string]func() error{}
)

func check(name string, body func() error) {
	names, steps[name] = append(names, name), body
}

// All of these are nil, or the first that is not.
func all(results ...error) error {
	for number, err := range results {
		if err != nil {
			return fmt.Errorf("request %d: %w", number, err)
		}
	}
	return nil
}

func is(found, expected error) error {
	if !errors.Is(found, expected) {
		return fmt.Errorf("%v instead of %v", found, expected)
	}
	return nil
}

func holds(key string, value []byte) error {
	item, err := cache.Get(key)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if !bytes.Equal(item.Value, value) {
		return fmt.Errorf("%s holds %.100q instead of %.100q", key, item.Value, value)
	}
	return nil
}

func missing(key string) error {
	_, err := cache.Get(key)
	return is(err, memcache.ErrCacheMiss)
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func counts(expected uint64, call func(string, uint64) (uint64, error), delta uint64) error {
	found, err := call("n", delta)
	if err == nil && found != expected {
		err = fmt.Errorf("%d instead of %d", found, expected)
	}
	return err
}

func store() error {
	return all(
		cache.Set(&memcache.Item{Key: "k", Value: []byte("v"), Flags: 0xffffffff}), holds("k", []byte("v")),
		is(cache.Add(item("k", "w")), memcache.ErrNotStored), cache.Add(item("fresh", "f")),
		is(cache.Replace(item("none", "w")), memcache.ErrNotStored), cache.Replace(item("k", "b")),
		cache.Append(item("k", "c")), cache.Prepend(item("k", "a")), holds("k", []byte("abc")),
		is(cache.Append(item("none", "x")), memcache.ErrNotStored), missing("none"),
		cache.Delete("k"), is(cache.Delete("k"), memcache.ErrCacheMiss), cache.Ping())
}

func multiGet() error {
	keys := []string{"none"}
	for number := range 300 {
		key := fmt.Sprintf("key-%d", number)
		keys = append(keys, key)
		if err := cache.Set(item(key, key)); err != nil {
			return err
		}
	}
	found, err := cache.GetMulti(keys)
	if err != nil || len(found) != 300 {
		return fmt.Errorf("%d found, %v", len(found), err)
	}
	for key, item := range found {
		if string(item.Value) != key {
			return fmt.Errorf("%s holds %s", key, item.Value)
		}
	}
	return nil
}

func cas() error {
	if err := cache.Set(item("c", "1")); err != nil {
		return err
	}
	first, err := cache.Get("c")
	if err != nil {
		return err
	}
	second := *first
	first.Value, second.Value = []byte("2"), []byte("3")
	return all(cache.CompareAndSwap(first), is(cache.CompareAndSwap(&second), memcache.ErrCASConflict), holds("c", []byte("2")))
}

func counters() error {
	_, absent := cache.Increment("none", 1)
	return all(cache.Set(item("n", "10")), counts(15, cache.Increment, 5), counts(9, cache.Decrement, 6),
		counts(0, cache.Decrement, 100), is(absent, memcache.ErrCacheMiss))
}

func expiry() error {
	// A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
	err := all(
		cache.Set(&memcache.Item{Key: "soon", Value: []byte("v"), Expiration: 1}),
		cache.Set(&memcache.Item{Key: "touched", Value: []byte("v"), Expiration: 1000}),
		cache.Touch("touched", 1), is(cache.Touch("none", 1), memcache.ErrCacheMiss))
	return all(err, gone("soon"), gone("touched"))
}

// gone waits until an expiring document is missing.
func gone(key string) error {
	for deadline := time.Now().Add(30 * time.Second); missing(key) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the document does not expire")
		}
	}
	return nil
}

func large() error {
	value := make([]byte, 900_000)
	for at := range value {
		value[at] = byte(at % 251)
	}
	return all(cache.Set(&memcache.Item{Key: "large", Value: value}), holds("large", value))
}

func binary() error {
	value := []byte("\r\nEND\r\nVALUE x 0 1\r\n")
	for at := range 2048 {
		value = append(value, byte(at))
	}
	return all(cache.Set(&memcache.Item{Key: "binary", Value: value}), holds("binary", value),
		cache.Set(item("empty", "")), holds("empty", []byte{}))
}

func failures() error {
	if err := cache.Set(item("text", "text")); err != nil {
		return err
	}
	if _, err := cache.Increment("text", 1); err == nil {
		return errors.New("a text was counted up")
	}
	if err := cache.Set(&memcache.Item{Key: "huge", Value: make([]byte, tooLarge)}); err == nil {
		return errors.New("a huge document was stored")
	}
	longest := string(bytes.Repeat([]byte("k"), 250))
	return all(cache.Set(item(longest, "longest")), holds(longest, []byte("longest")), holds("text", []byte("text")))
}

func main() {
	cache = memcache.New("127.0.0.1:" + os.Args[1])
	cache.Timeout = time.Minute
	check("store", store)
	check("multi-get", multiGet)
	check("cas", cas)
	check("counters", counters)
	check("expiry", expiry)
	check("large", large)
	check("binary", binary)
	check("errors", failures)
	code := 0
	for _, name := range names {
		if err := steps[name](); err != nil {
			code = 1
			fmt.Println("FAIL", name, err)
		} else {
			fmt.Println("PASS", name)
		}
	}
	os.Exit(code)
}
