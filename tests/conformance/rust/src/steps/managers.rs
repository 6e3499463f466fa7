//! Users and buckets, managed as an application's set-up manages them.

use std::time::Duration;

use couchbase::cluster::Cluster;
use couchbase::collection::Collection;
use couchbase::error::{Error, ErrorKind};
use couchbase::management::buckets::bucket_settings::{
    BucketSettings, BucketType, CompressionMode, EvictionPolicyType,
};
use couchbase::management::users::user::{Group, Role, User};
use couchbase::management::users::user_manager::UserManager;
use tokio::time::timeout;

use super::{Program, open_as};
use crate::checks::{Failure, Outcome, check, equal, eventually, fails, within};

const USER: &str = "ada";
const FIRST_PASSWORD: &str = "first password";
const SECOND_PASSWORD: &str = "second password";
const BUCKET: &str = "made-by-rust";

impl Program {
    pub(super) async fn users(&self) -> Outcome {
        let manager = self.cluster.users();
        fails(manager.get_user(USER, None).await, ErrorKind::UserNotFound)?;
        // A role in the whole bucket is listed with the scope and collection `*`.
        let reader = || Role::new("data_reader").bucket("default").scope("*").collection("*");
        let writer = Role::new("data_writer").bucket("default");
        let writer = writer.scope("_default").collection("_default");
        let ada = User::new(USER, "Ada L", vec![reader(), writer.clone()]).password(FIRST_PASSWORD);
        within(manager.upsert_user(ada, None)).await?;
        let found = within(manager.get_user(USER, None)).await?;
        equal((found.user.display_name, found.user.roles), ("Ada L".into(), vec![reader(), writer]))?;
        let all = within(manager.get_all_users(None)).await?;
        let names: Vec<&str> = all.iter().map(|each| each.user.username.as_str()).collect();
        check(names.contains(&USER) && names.contains(&"Administrator"), "both users")?;
        let (_ada, collection) = login(FIRST_PASSWORD).await?;
        within(collection.upsert("by-ada", 1, None)).await?;

        within(manager.upsert_user(User::new(USER, "Ada", vec![reader()]), None)).await?;
        equal(roles_of(&manager).await?, vec![reader()])?;
        reads_only(FIRST_PASSWORD).await?;
        let ada = within(open_as(USER, FIRST_PASSWORD, None)).await?;
        within(ada.users().change_password(SECOND_PASSWORD, None)).await?;
        reads_only(SECOND_PASSWORD).await?;
        refuses_login(FIRST_PASSWORD).await?;

        // What there is not is refused in words, and changes nothing.
        let roles = within(manager.get_roles(None)).await?;
        for name in ["admin", "data_reader", "data_writer", "bucket_full_access"] {
            check(roles.iter().any(|each| each.role.name == name), name)?;
        }
        let unknown = User::new(USER, "", vec![Role::new("ro_admin")]);
        refused_in_words(manager.upsert_user(unknown, None).await, "ro_admin")?;
        let grouped = User::new(USER, "", vec![reader()]).add_group("staff");
        refused_in_words(manager.upsert_user(grouped, None).await, "no groups")?;
        check(within(manager.get_all_groups(None)).await?.is_empty(), "no groups")?;
        fails(manager.get_group("staff", None).await, ErrorKind::GroupNotFound)?;
        let staff = Group::new("staff", "", vec![reader()]);
        refused_in_words(manager.upsert_group(staff, None).await, "no groups")?;
        equal(roles_of(&manager).await?, vec![reader()])?;

        within(manager.drop_user(USER, None)).await?;
        fails(manager.drop_user(USER, None).await, ErrorKind::UserNotFound)?;
        refuses_login(SECOND_PASSWORD).await?;
        Ok(String::new())
    }

    pub(super) async fn buckets(&self) -> Outcome {
        let manager = self.cluster.buckets();
        fails(manager.get_bucket(BUCKET, None).await, ErrorKind::BucketNotFound)?;
        let first = BucketSettings::new(BUCKET).bucket_type(BucketType::EPHEMERAL).ram_quota_mb(100);
        within(manager.create_bucket(first.clone(), None)).await?;
        fails(manager.create_bucket(first, None).await, ErrorKind::BucketExists)?;
        let made = within(manager.get_bucket(BUCKET, None)).await?;
        equal(
            (made.bucket_type.clone(), made.ram_quota_mb, made.flush_enabled),
            (Some(BucketType::EPHEMERAL), Some(100), Some(false)),
        )?;
        equal(made.eviction_policy.clone(), Some(EvictionPolicyType::NO_EVICTION))?;
        let names = self.bucket_names().await?;
        check(names.iter().any(|name| name == BUCKET), "the bucket is listed")?;
        check(names.iter().any(|name| name == "default"), "and so is the other")?;
        let collection = self.cluster.bucket(BUCKET).default_collection();
        eventually(|| collection.upsert("d", 1, None)).await?;
        fails(manager.flush_bucket(BUCKET, None).await, ErrorKind::BucketNotFlushable)?;
        equal(within(collection.get("d", None)).await?.content_as::<i64>()?, 1)?;

        let changed = made.ram_quota_mb(128).flush_enabled(true);
        let changed = changed.compression_mode(CompressionMode::ACTIVE);
        within(manager.update_bucket(changed, None)).await?;
        let changed = within(manager.get_bucket(BUCKET, None)).await?;
        equal(
            (changed.ram_quota_mb, changed.flush_enabled, changed.compression_mode),
            (Some(128), Some(true), Some(CompressionMode::ACTIVE)),
        )?;
        within(manager.flush_bucket(BUCKET, None)).await?;
        fails(collection.get("d", None).await, ErrorKind::DocumentNotFound)?;
        let other = BucketSettings::new("other").ram_quota_mb(100);
        let other = other.max_expiry(Duration::from_secs(60));
        within(manager.create_bucket(other, None)).await?;
        let made = within(manager.get_bucket("other", None)).await?;
        equal(made.max_expiry, Some(Duration::from_secs(60)))?;
        within(manager.drop_bucket("other", None)).await?;
        within(manager.drop_bucket(BUCKET, None)).await?;
        fails(manager.drop_bucket(BUCKET, None).await, ErrorKind::BucketNotFound)?;
        check(!self.bucket_names().await?.iter().any(|name| name == BUCKET), "the bucket is gone")?;
        Ok(String::new())
    }

    async fn bucket_names(&self) -> Result<Vec<String>, Failure> {
        let all = within(self.cluster.buckets().get_all_buckets(None)).await?;
        Ok(all.into_iter().map(|each| each.name).collect())
    }
}

async fn roles_of(manager: &UserManager) -> Result<Vec<Role>, Failure> {
    Ok(within(manager.get_user(USER, None)).await?.user.roles)
}

/// The collection is usable as long as its cluster.
async fn login(password: &str) -> Result<(Cluster, Collection), Failure> {
    let cluster = within(open_as(USER, password, None)).await?;
    let bucket = cluster.bucket("default");
    within(bucket.wait_until_ready(None)).await?;
    Ok((cluster, bucket.default_collection()))
}

async fn reads_only(password: &str) -> Result<(), Failure> {
    let (_ada, collection) = login(password).await?;
    equal(within(collection.get("by-ada", None)).await?.content_as::<i64>()?, 1)?;
    fails(collection.upsert("by-ada", 2, None).await, ErrorKind::AuthenticationFailure)
}

/// The SDK keeps trying until the caller gives up, because a password may become right.
async fn refuses_login(password: &str) -> Result<(), Failure> {
    let attempt = timeout(Duration::from_secs(2), open_as(USER, password, None)).await;
    check(!matches!(attempt, Ok(Ok(_))), "no connection")
}

fn refused_in_words<T>(outcome: Result<T, Error>, words: &str) -> Result<(), Failure> {
    match outcome {
        Ok(_) => Err(format!("expected {words:?}, got a result").into()),
        Err(error) if error.to_string().contains(words) => Ok(()),
        Err(error) => Err(format!("expected {words:?}, got {error}").into()),
    }
}
