package main

import (
	"slices"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	managedUser    = "ada"
	firstPassword  = "first password"
	secondPassword = "second password"
	managedBucket  = "made-by-go"
)

// users are managed as an application's set-up manages them.
func (p *program) users() string {
	manager := p.cluster.Users()
	_, err := manager.GetUser(managedUser, nil)
	fails(err, gocb.ErrUserNotFound)
	reader := gocb.Role{Name: "data_reader", Bucket: "default"}
	writer := gocb.Role{Name: "data_writer", Bucket: "default", Scope: "_default", Collection: "_default"}
	roles := func() []gocb.Role { return must(manager.GetUser(managedUser, nil)).Roles }
	ok(manager.UpsertUser(gocb.User{
		Username: managedUser, DisplayName: "Ada L", Roles: []gocb.Role{reader, writer}, Password: firstPassword,
	}, nil))
	equal(must(manager.GetUser(managedUser, nil)).DisplayName, "Ada L")
	equal(roles(), []gocb.Role{reader, writer})
	names := []string{}
	for _, user := range must(manager.GetAllUsers(nil)) {
		names = append(names, user.Username)
	}
	check(slices.Contains(names, managedUser) && slices.Contains(names, p.user), "both users")
	p.withLogin(firstPassword, func(collection *gocb.Collection) { must(collection.Upsert("by-ada", 1, nil)) })

	ok(manager.UpsertUser(gocb.User{Username: managedUser, DisplayName: "Ada", Roles: []gocb.Role{reader}}, nil))
	equal(roles(), []gocb.Role{reader})
	readOnly := func(collection *gocb.Collection) {
		equal(content[int](must(collection.Get("by-ada", nil))), 1)
		_, err := collection.Upsert("by-ada", 2, nil)
		fails(err, gocb.ErrAuthenticationFailure)
	}
	p.withLogin(firstPassword, readOnly)
	ada := p.openAs(managedUser, firstPassword, gocb.CompressionConfig{})
	ok(ada.WaitUntilReady(20*time.Second, nil))
	ok(ada.Users().ChangePassword(secondPassword, nil))
	ok(ada.Close(nil))
	p.withLogin(secondPassword, readOnly)
	p.refusesLogin(firstPassword)

	// What there is not is refused in words, and changes nothing.
	known := []string{}
	for _, role := range must(manager.GetRoles(nil)) {
		known = append(known, role.Name)
	}
	for _, name := range []string{"admin", "data_reader", "data_writer", "bucket_full_access"} {
		check(slices.Contains(known, name), "the role "+name)
	}
	refusedInWords(manager.UpsertUser(gocb.User{Username: managedUser, Roles: []gocb.Role{{Name: "ro_admin"}}}, nil), "ro_admin")
	refusedInWords(manager.UpsertUser(gocb.User{
		Username: managedUser, Roles: []gocb.Role{reader}, Groups: []string{"staff"},
	}, nil), "no groups")
	equal(len(must(manager.GetAllGroups(nil))), 0)
	_, err = manager.GetGroup("staff", nil)
	fails(err, gocb.ErrGroupNotFound)
	refusedInWords(manager.UpsertGroup(gocb.Group{Name: "staff", Roles: []gocb.Role{reader}}, nil), "no groups")
	equal(roles(), []gocb.Role{reader})

	ok(manager.DropUser(managedUser, nil))
	fails(manager.DropUser(managedUser, nil), gocb.ErrUserNotFound)
	p.refusesLogin(secondPassword)
	return ""
}

func refusedInWords(err error, words string) {
	check(err != nil, "a refusal")
	check(strings.Contains(strings.ToLower(err.Error()), words), words+", got "+err.Error())
}

func (p *program) withLogin(password string, use func(*gocb.Collection)) {
	cluster := p.openAs(managedUser, password, gocb.CompressionConfig{})
	defer cluster.Close(nil)
	bucket := cluster.Bucket("default")
	ok(bucket.WaitUntilReady(20*time.Second, nil))
	use(bucket.DefaultCollection())
}

func (p *program) refusesLogin(password string) {
	cluster := p.openAs(managedUser, password, gocb.CompressionConfig{})
	defer cluster.Close(nil)
	options := &gocb.WaitUntilReadyOptions{RetryStrategy: neverRetry{}}
	fails(cluster.Bucket("default").WaitUntilReady(15*time.Second, options), gocb.ErrAuthenticationFailure)
}

// buckets are managed as an application's set-up manages them.
func (p *program) buckets() string {
	manager := p.cluster.Buckets()
	_, err := manager.GetBucket(managedBucket, nil)
	fails(err, gocb.ErrBucketNotFound)
	first := gocb.BucketSettings{Name: managedBucket, BucketType: gocb.EphemeralBucketType, RAMQuotaMB: 100}
	ok(manager.CreateBucket(gocb.CreateBucketSettings{BucketSettings: first}, nil))
	fails(manager.CreateBucket(gocb.CreateBucketSettings{BucketSettings: first}, nil), gocb.ErrBucketExists)
	made := must(manager.GetBucket(managedBucket, nil))
	equal([]any{made.BucketType, made.RAMQuotaMB, made.FlushEnabled, made.EvictionPolicy},
		[]any{gocb.EphemeralBucketType, uint64(100), false, gocb.EvictionPolicyTypeNoEviction})
	all := must(manager.GetAllBuckets(nil))
	check(all[managedBucket].Name == managedBucket && all["default"].Name == "default", "both buckets")
	bucket := p.cluster.Bucket(managedBucket)
	ok(bucket.WaitUntilReady(20*time.Second, nil))
	collection := bucket.DefaultCollection()
	must(collection.Upsert("d", 1, nil))
	fails(manager.FlushBucket(managedBucket, nil), gocb.ErrBucketNotFlushable)
	equal(content[int](must(collection.Get("d", nil))), 1)

	made.RAMQuotaMB, made.FlushEnabled, made.CompressionMode = 128, true, gocb.CompressionModeActive
	ok(manager.UpdateBucket(*made, nil))
	changed := must(manager.GetBucket(managedBucket, nil))
	equal([]any{changed.RAMQuotaMB, changed.FlushEnabled, changed.CompressionMode},
		[]any{uint64(128), true, gocb.CompressionModeActive})
	ok(manager.FlushBucket(managedBucket, nil))
	_, err = collection.Get("d", nil)
	fails(err, gocb.ErrDocumentNotFound)
	other := gocb.BucketSettings{
		Name: "other", BucketType: gocb.CouchbaseBucketType, RAMQuotaMB: 100, MaxExpiry: time.Minute,
	}
	ok(manager.CreateBucket(gocb.CreateBucketSettings{BucketSettings: other}, nil))
	equal(must(manager.GetBucket("other", nil)).MaxExpiry, time.Minute)
	ok(manager.DropBucket("other", nil))
	ok(manager.DropBucket(managedBucket, nil))
	fails(manager.DropBucket(managedBucket, nil), gocb.ErrBucketNotFound)
	check(must(manager.GetAllBuckets(nil))[managedBucket].Name == "", "the bucket is gone")
	return ""
}
