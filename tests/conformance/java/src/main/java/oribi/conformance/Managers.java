package oribi.conformance;

import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;
import static oribi.conformance.Checks.fails;

import com.couchbase.client.core.error.BucketExistsException;
import com.couchbase.client.core.error.BucketNotFlushableException;
import com.couchbase.client.core.error.BucketNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.GroupNotFoundException;
import com.couchbase.client.core.error.UserNotFoundException;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.manager.bucket.BucketManager;
import com.couchbase.client.java.manager.bucket.BucketSettings;
import com.couchbase.client.java.manager.bucket.BucketType;
import com.couchbase.client.java.manager.bucket.CompressionMode;
import com.couchbase.client.java.manager.bucket.EvictionPolicyType;
import com.couchbase.client.java.manager.user.AuthDomain;
import com.couchbase.client.java.manager.user.Group;
import com.couchbase.client.java.manager.user.Role;
import com.couchbase.client.java.manager.user.User;
import com.couchbase.client.java.manager.user.UserAndMetadata;
import com.couchbase.client.java.manager.user.UserManager;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** Users and buckets, managed as an application's set-up manages them. */
final class Managers {
  private static final String USER = "ada";
  private static final String FIRST_PASSWORD = "first password";
  private static final String SECOND_PASSWORD = "second password";
  private static final String BUCKET = "made-by-java";

  private final Steps steps;

  Managers(Steps steps) {
    this.steps = steps;
  }

  String users() {
    UserManager manager = steps.cluster().users();
    fails(() -> manager.getUser(AuthDomain.LOCAL, USER), UserNotFoundException.class);
    Role reader = new Role("data_reader", "default");
    Role writer = new Role("data_writer", "default", "_default", "_default");
    manager.upsertUser(new User(USER).displayName("Ada L").roles(reader, writer).password(FIRST_PASSWORD));
    UserAndMetadata found = manager.getUser(AuthDomain.LOCAL, USER);
    equal(found.user().displayName(), "Ada L");
    equal(found.innateRoles(), Set.of(reader, writer));
    Set<String> names =
        manager.getAllUsers().stream().map(each -> each.user().username()).collect(Collectors.toSet());
    check(names.containsAll(List.of(USER, "Administrator")), "both users, got " + names);
    withLogin(FIRST_PASSWORD, collection -> collection.upsert("by-ada", 1));

    manager.upsertUser(new User(USER).displayName("Ada").roles(reader));
    equal(rolesOf(manager), Set.of(reader));
    Consumer<Collection> readOnly =
        collection -> {
          equal(collection.get("by-ada").contentAs(Integer.class), 1);
          Throwable refusal = fails(() -> collection.upsert("by-ada", 2), CouchbaseException.class);
          check(refusal.getMessage().contains("NO_ACCESS"), "no access, got " + refusal);
        };
    withLogin(FIRST_PASSWORD, readOnly);
    Cluster ada = steps.clusterOf(USER, FIRST_PASSWORD);
    ada.users().changePassword(SECOND_PASSWORD);
    ada.disconnect();
    withLogin(SECOND_PASSWORD, readOnly);
    steps.refusesLogin(USER, FIRST_PASSWORD);

    // What there is not is refused in words, and changes nothing.
    Set<String> roles = manager.getRoles().stream().map(each -> each.role().name()).collect(Collectors.toSet());
    check(
        roles.containsAll(List.of("admin", "data_reader", "data_writer", "bucket_full_access")),
        "the roles, got " + roles);
    refusedInWords(() -> manager.upsertUser(new User(USER).roles(new Role("ro_admin"))), "ro_admin");
    refusedInWords(() -> manager.upsertUser(new User(USER).roles(reader).groups("staff")), "no groups");
    equal(manager.getAllGroups(), List.of());
    fails(() -> manager.getGroup("staff"), GroupNotFoundException.class);
    refusedInWords(() -> manager.upsertGroup(new Group("staff").roles(reader)), "no groups");
    equal(rolesOf(manager), Set.of(reader));

    manager.dropUser(USER);
    fails(() -> manager.dropUser(USER), UserNotFoundException.class);
    steps.refusesLogin(USER, SECOND_PASSWORD);
    return null;
  }

  private static Set<Role> rolesOf(UserManager manager) {
    return manager.getUser(AuthDomain.LOCAL, USER).innateRoles();
  }

  private static void refusedInWords(Runnable call, String words) {
    Throwable refusal = fails(call, CouchbaseException.class);
    check(refusal.getMessage().contains(words), words + ", got " + refusal.getMessage());
  }

  private void withLogin(String password, Consumer<Collection> use) {
    Cluster cluster = steps.clusterOf(USER, password);
    try {
      use.accept(cluster.bucket("default").defaultCollection());
    } finally {
      cluster.disconnect();
    }
  }

  String buckets() throws InterruptedException {
    BucketManager manager = steps.cluster().buckets();
    fails(() -> manager.getBucket(BUCKET), BucketNotFoundException.class);
    BucketSettings first = BucketSettings.create(BUCKET).bucketType(BucketType.EPHEMERAL).ramQuotaMB(100);
    manager.createBucket(first);
    fails(() -> manager.createBucket(first), BucketExistsException.class);
    BucketSettings made = manager.getBucket(BUCKET);
    equal(
        List.of(made.bucketType(), made.ramQuotaMB(), made.flushEnabled(), made.evictionPolicy()),
        List.of(BucketType.EPHEMERAL, 100L, false, EvictionPolicyType.NO_EVICTION));
    check(manager.getAllBuckets().keySet().containsAll(List.of(BUCKET, "default")), "both buckets");
    steps.cluster().bucket(BUCKET).waitUntilReady(Duration.ofSeconds(20));
    Collection collection = steps.cluster().bucket(BUCKET).defaultCollection();
    eventually(() -> collection.upsert("d", 1), Steps.NOT_THERE_YET);
    fails(() -> manager.flushBucket(BUCKET), BucketNotFlushableException.class);
    equal(collection.get("d").contentAs(Integer.class), 1);

    manager.updateBucket(made.ramQuotaMB(128).flushEnabled(true).compressionMode(CompressionMode.ACTIVE));
    BucketSettings changed = manager.getBucket(BUCKET);
    equal(
        List.of(changed.ramQuotaMB(), changed.flushEnabled(), changed.compressionMode()),
        List.of(128L, true, CompressionMode.ACTIVE));
    manager.flushBucket(BUCKET);
    fails(() -> collection.get("d"), DocumentNotFoundException.class);
    BucketSettings other = BucketSettings.create("other").ramQuotaMB(100).maxExpiry(Duration.ofMinutes(1));
    manager.createBucket(other);
    equal(manager.getBucket("other").maxExpiry(), Duration.ofMinutes(1));
    manager.dropBucket("other");
    manager.dropBucket(BUCKET);
    fails(() -> manager.dropBucket(BUCKET), BucketNotFoundException.class);
    check(!manager.getAllBuckets().containsKey(BUCKET), "the bucket is gone");
    return null;
  }
}
