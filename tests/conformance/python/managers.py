"""Users and buckets, managed as an application's set-up manages them."""

from datetime import timedelta

from couchbase.exceptions import (AmbiguousTimeoutException, AuthenticationException, BucketAlreadyExistsException,
                                  BucketDoesNotExistException, BucketNotFlushableException, CouchbaseException,
                                  DocumentNotFoundException, GroupNotFoundException, RequestCanceledException,
                                  UnAmbiguousTimeoutException, UserNotFoundException)
from couchbase.management.buckets import (BucketSettings, BucketType, CompressionMode, CreateBucketSettings,
                                          EvictionPolicyType)
from couchbase.management.users import Group, Role, User

from checks import check, equal, eventually, raises

USER, FIRST_PASSWORD, SECOND_PASSWORD = "ada", "first password", "second password"
BUCKET = "made-by-python"
NOT_THERE_YET = (AmbiguousTimeoutException, UnAmbiguousTimeoutException, RequestCanceledException, DocumentNotFoundException)


def users(cluster, open_as):
    """`open_as` connects with a password and a name."""
    manager = cluster.users()
    raises(UserNotFoundException, lambda: manager.get_user(USER))
    # A role in the whole bucket is listed with the scope and collection `*`.
    reader = Role(name="data_reader", bucket="default", scope="*", collection="*")
    writer = Role(name="data_writer", bucket="default", scope="_default", collection="_default")
    manager.upsert_user(User(username=USER, display_name="Ada L", roles={reader, writer}, password=FIRST_PASSWORD))
    found = manager.get_user(USER).user
    equal((found.display_name, found.roles), ("Ada L", {reader, writer}))
    names = [each.user.username for each in manager.get_all_users()]
    check(USER in names and "Administrator" in names, f"both users, got {names}")
    with_login(open_as, FIRST_PASSWORD, lambda collection: collection.upsert("by-ada", 1))

    manager.upsert_user(User(username=USER, display_name="Ada", roles={reader}))
    equal(manager.get_user(USER).user.roles, {reader})

    def read_only(collection):
        equal(collection.get("by-ada").content_as[int], 1)
        raises(AuthenticationException, lambda: collection.upsert("by-ada", 2))

    with_login(open_as, FIRST_PASSWORD, read_only)
    ada = open_as(FIRST_PASSWORD, USER)
    ada.users().change_password(SECOND_PASSWORD)
    ada.close()
    with_login(open_as, SECOND_PASSWORD, read_only)
    raises(AuthenticationException, lambda: open_as(FIRST_PASSWORD, USER))

    # What there is not is refused in words, and changes nothing.
    roles = {each.role.name for each in manager.get_roles()}
    check({"admin", "data_reader", "data_writer", "bucket_full_access"} <= roles, f"the roles, got {roles}")
    unknown = raises(CouchbaseException, lambda: manager.upsert_user(User(username=USER, roles={Role(name="ro_admin")})))
    check("ro_admin" in str(unknown), f"the unknown role is named, got {unknown}")
    grouped = raises(CouchbaseException, lambda: manager.upsert_user(User(username=USER, roles={reader}, groups={"staff"})))
    check("no groups" in str(grouped), f"there are no groups, got {grouped}")
    equal(list(manager.get_all_groups()), [])
    raises(GroupNotFoundException, lambda: manager.get_group("staff"))
    grouped = raises(CouchbaseException, lambda: manager.upsert_group(Group(name="staff", roles={reader})))
    check("no groups" in str(grouped), f"there are no groups, got {grouped}")
    equal(manager.get_user(USER).user.roles, {reader})

    manager.drop_user(USER)
    raises(UserNotFoundException, lambda: manager.drop_user(USER))
    raises(AuthenticationException, lambda: open_as(SECOND_PASSWORD, USER))


def with_login(open_as, password, use):
    cluster = open_as(password, USER)
    cluster.wait_until_ready(timedelta(seconds=20))
    use(cluster.bucket("default").default_collection())
    cluster.close()


def buckets(cluster):
    manager = cluster.buckets()
    raises(BucketDoesNotExistException, lambda: manager.get_bucket(BUCKET))
    manager.create_bucket(CreateBucketSettings(name=BUCKET, bucket_type=BucketType.EPHEMERAL, ram_quota_mb=100,
                                               flush_enabled=False))
    raises(BucketAlreadyExistsException, lambda: manager.create_bucket(CreateBucketSettings(name=BUCKET, ram_quota_mb=100)))
    made = manager.get_bucket(BUCKET)
    equal((made.bucket_type, made.ram_quota_mb, made.flush_enabled, made.eviction_policy),
          (BucketType.EPHEMERAL, 100, False, EvictionPolicyType.NO_EVICTION))
    names = [each.name for each in manager.get_all_buckets()]
    check(BUCKET in names and "default" in names, f"both buckets, got {names}")
    collection = cluster.bucket(BUCKET).default_collection()
    eventually(lambda: collection.upsert("d", 1), NOT_THERE_YET)
    raises(BucketNotFlushableException, lambda: manager.flush_bucket(BUCKET))
    equal(collection.get("d").content_as[int], 1)

    manager.update_bucket(BucketSettings(name=BUCKET, ram_quota_mb=128, flush_enabled=True,
                                         compression_mode=CompressionMode.ACTIVE))
    changed = manager.get_bucket(BUCKET)
    equal((changed.ram_quota_mb, changed.flush_enabled, changed.compression_mode), (128, True, CompressionMode.ACTIVE))
    manager.flush_bucket(BUCKET)
    raises(DocumentNotFoundException, lambda: collection.get("d"))
    manager.create_bucket(
        CreateBucketSettings(name="other", ram_quota_mb=100, max_expiry=timedelta(seconds=60)))
    equal(manager.get_bucket("other").max_expiry, timedelta(seconds=60))
    manager.drop_bucket("other")
    manager.drop_bucket(BUCKET)
    raises(BucketDoesNotExistException, lambda: manager.drop_bucket(BUCKET))
    check(BUCKET not in [each.name for each in manager.get_all_buckets()], "the bucket is gone")
