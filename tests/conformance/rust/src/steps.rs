//! What each step does. The names and their order are those of harness/steps.py.

mod compression;
mod crash;
mod locks;
mod log;
mod managers;
mod many;
mod nodes;
mod replicas;
mod rights;
mod sub_document_cases;
mod sub_documents;

use std::env;
use std::time::Duration;

use couchbase::authenticator::PasswordAuthenticator;
use couchbase::bucket::Bucket;
use couchbase::cluster::Cluster;
use couchbase::collection::Collection;
use couchbase::durability_level::DurabilityLevel;
use couchbase::error::ErrorKind;
use couchbase::mutation_state::MutationState;
use couchbase::options::cluster_options::{ClusterOptions, CompressionMode, TlsOptions};
use couchbase::options::kv_binary_options::{DecrementOptions, IncrementOptions};
use couchbase::options::kv_options::{
    InsertOptions, MutateInOptions, RemoveOptions, ReplaceOptions, UpsertOptions,
};
use couchbase::subdoc::lookup_in_specs::{GetSpecOptions, LookupInSpec};
use couchbase::subdoc::mutate_in_specs::{MutateInSpec, UpsertSpecOptions};
use couchbase::transcoding::raw_binary;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tracing::instrument::WithSubscriber;

use self::log::Log;
use self::nodes::ExpectedValues;
use crate::checks::{Failure, Outcome, check, equal, eventually, fails, within};

const VALUE_BYTES_MAX: usize = 20 * 1024 * 1024;

pub const NAMES: [&str; 38] = [
    "crud",
    "not-found",
    "exists",
    "cas-mismatch",
    "counters",
    "append-prepend",
    "expiry",
    "touch",
    "get-and-touch",
    "durability",
    "observed-durability",
    "mutation-tokens",
    "look-up-in",
    "mutate-in",
    "macros",
    "deleted-documents",
    "projections",
    "preserve-expiry",
    "replicas",
    "locks",
    "compression",
    "rights",
    "scans",
    "collections",
    "users",
    "buckets",
    "document-20-mib",
    "too-large",
    "wrong-password",
    "parallel-50000",
    "kill-restart",
    "join",
    "kill",
    "new-client",
    "return",
    "kill-again",
    "return-again",
    "leave",
];

pub struct Program {
    cluster: Cluster,
    bucket: Bucket,
    collection: Collection,
    written: ExpectedValues,
}

/// The bucket that steps use.
fn bucket_name() -> String {
    env::var("ORIBI_BUCKET").unwrap_or_else(|_| "default".to_owned())
}

async fn open(password: &str) -> couchbase::error::Result<Cluster> {
    open_as(&env::var("ORIBI_USER").unwrap_or_default(), password, None).await
}

async fn open_as(
    user: &str,
    password: &str,
    compression: Option<CompressionMode>,
) -> couchbase::error::Result<Cluster> {
    let address = env::var("ORIBI_CONNSTR").unwrap_or_default();
    let mut options = ClusterOptions::new(PasswordAuthenticator::new(user, password).into());
    if let Some(mode) = compression {
        options = options.compression_mode(mode);
    }
    // The authority that vouches for the server, where TLS is spoken. A file that cannot be read
    // trusts no server, so that connecting fails.
    if let Ok(authority) = env::var("ORIBI_CA_DER") {
        let der = std::fs::read(authority).unwrap_or_default();
        options = options.tls_options(TlsOptions::new().add_ca_certificate(der.into()));
    }
    Cluster::connect(address, options).await
}

impl Program {
    pub async fn connect() -> Result<Program, Failure> {
        let cluster = within(open(&env::var("ORIBI_PASSWORD")?)).await?;
        within(cluster.wait_until_ready(None)).await?;
        let bucket = cluster.bucket(bucket_name());
        within(bucket.wait_until_ready(None)).await?;
        within(bucket.ping(None)).await?;
        let collection = bucket.default_collection();
        Ok(Program { cluster, bucket, collection, written: ExpectedValues::default() })
    }

    pub async fn run(&self, name: &str) -> Outcome {
        match name {
            "crud" => self.crud().await,
            "not-found" => self.not_found().await,
            "exists" => self.exists().await,
            "cas-mismatch" => self.cas_mismatch().await,
            "counters" => self.counters().await,
            "append-prepend" => self.append_prepend().await,
            "expiry" => self.expiry().await,
            "touch" => self.touch().await,
            "get-and-touch" => self.get_and_touch().await,
            "durability" => self.durability().await,
            "observed-durability" | "scans" => Ok("this SDK has none".to_owned()),
            "mutation-tokens" => self.mutation_tokens().await,
            "look-up-in" => self.look_up_in().await,
            "mutate-in" => self.mutate_in().await,
            "macros" => self.macros().await,
            "deleted-documents" => self.deleted_documents().await,
            "projections" => self.projections().await,
            "preserve-expiry" => self.preserve_expiry().await,
            "replicas" => self.replicas().await,
            "locks" => self.locks().await,
            "compression" => self.compression().await,
            "rights" => self.rights().await,
            "collections" => self.collections().await,
            "users" => self.users().await,
            "buckets" => self.buckets().await,
            "document-20-mib" => self.document_20_mib().await,
            "too-large" => self.too_large().await,
            "wrong-password" => self.wrong_password().await,
            "parallel-50000" => self.parallel_50000().await,
            "kill-restart" => self.kill_restart().await,
            "new-client" => self.new_client().await,
            "join" | "kill" | "return" | "kill-again" | "return-again" | "leave" => {
                self.change_nodes(name).await
            }
            _ => Err(format!("there is no step {name}").into()),
        }
    }

    async fn json(&self, key: &str) -> Result<Value, Failure> {
        Ok(within(self.collection.get(key, None)).await?.content_as()?)
    }

    async fn crud(&self) -> Outcome {
        let first =
            within(self.collection.insert("crud", json!({"name": "Ada", "born": 1815}), None))
                .await?;
        let got = within(self.collection.get("crud", None)).await?;
        equal(got.content_as::<Value>()?, json!({"name": "Ada", "born": 1815}))?;
        equal(got.cas(), first.cas())?;
        let second = within(self.collection.upsert("crud", json!({"name": "Grace"}), None)).await?;
        check(second.cas() != first.cas(), "a new CAS")?;
        let options = ReplaceOptions::new().cas(second.cas());
        let third =
            within(self.collection.replace("crud", json!(["a", 1, null, "é"]), options)).await?;
        let got = within(self.collection.get("crud", None)).await?;
        equal(got.content_as::<Value>()?, json!(["a", 1, null, "é"]))?;
        equal(got.cas(), third.cas())?;
        within(self.collection.remove("crud", RemoveOptions::new().cas(third.cas()))).await?;
        fails(self.collection.get("crud", None).await, ErrorKind::DocumentNotFound)?;
        Ok(String::new())
    }

    async fn not_found(&self) -> Outcome {
        let (key, ten_seconds) = ("never-written", Duration::from_secs(10));
        fails(self.collection.get(key, None).await, ErrorKind::DocumentNotFound)?;
        fails(self.collection.remove(key, None).await, ErrorKind::DocumentNotFound)?;
        fails(self.collection.replace(key, 1, None).await, ErrorKind::DocumentNotFound)?;
        fails(self.collection.touch(key, ten_seconds, None).await, ErrorKind::DocumentNotFound)?;
        fails(
            self.collection.get_and_touch(key, ten_seconds, None).await,
            ErrorKind::DocumentNotFound,
        )?;
        let options = IncrementOptions::new().delta(1);
        fails(self.collection.binary().increment(key, options).await, ErrorKind::DocumentNotFound)?;
        Ok(String::new())
    }

    async fn exists(&self) -> Outcome {
        // The SDK answers "no" for a document that is gone, and an error for one that never was.
        fails(self.collection.exists("exists", None).await, ErrorKind::DocumentNotFound)?;
        let stored = within(self.collection.insert("exists", 1, None)).await?;
        let found = within(self.collection.exists("exists", None)).await?;
        equal((found.exists(), found.cas()), (true, stored.cas()))?;
        fails(self.collection.insert("exists", 2, None).await, ErrorKind::DocumentExists)?;
        within(self.collection.remove("exists", None)).await?;
        equal(within(self.collection.exists("exists", None)).await?.exists(), false)?;
        Ok(String::new())
    }

    async fn cas_mismatch(&self) -> Outcome {
        let old = within(self.collection.upsert("cas", 1, None)).await?.cas();
        let current = within(self.collection.upsert("cas", 2, None)).await?.cas();
        let replaced = self.collection.replace("cas", 3, ReplaceOptions::new().cas(old)).await;
        fails(replaced, ErrorKind::CasMismatch)?;
        let removed = self.collection.remove("cas", RemoveOptions::new().cas(old)).await;
        fails(removed, ErrorKind::CasMismatch)?;
        equal(self.json("cas").await?, json!(2))?;
        within(self.collection.replace("cas", 4, ReplaceOptions::new().cas(current))).await?;
        Ok(String::new())
    }

    async fn counters(&self) -> Outcome {
        let binary = self.collection.binary();
        let up = || binary.increment("counter", IncrementOptions::new().delta(5).initial(10));
        let down =
            |delta| binary.decrement("counter", DecrementOptions::new().delta(delta).initial(10));
        equal(within(up()).await?.content(), 10)?;
        equal(within(up()).await?.content(), 15)?;
        equal(within(down(4)).await?.content(), 11)?;
        equal(within(down(100)).await?.content(), 0)?;
        equal(self.json("counter").await?, json!(0))?;
        within(self.collection.upsert("not-a-counter", "text", None)).await?;
        let refused = binary.increment("not-a-counter", IncrementOptions::new().delta(1)).await;
        fails(refused, ErrorKind::DeltaInvalid)?;
        Ok(String::new())
    }

    async fn append_prepend(&self) -> Outcome {
        let (value, flags) = raw_binary::encode(b"middle")?;
        within(self.collection.upsert_raw("concat", value, flags, None)).await?;
        within(self.collection.binary().append("concat", b"-end\x00", None)).await?;
        within(self.collection.binary().prepend("concat", b"\xffbegin-", None)).await?;
        let got = within(self.collection.get("concat", None)).await?;
        equal(got.content_as_raw(), (&b"\xffbegin-middle-end\x00"[..], flags))?;
        Ok(String::new())
    }

    async fn expiry(&self) -> Outcome {
        let options = InsertOptions::new().expiry(Duration::from_secs(2));
        within(self.collection.insert("expiry", 1, options)).await?;
        within(self.collection.get("expiry", None)).await?;
        self.until_not_found("expiry").await?;
        within(self.collection.insert("expiry", 1, None)).await?;
        Ok(String::new())
    }

    async fn touch(&self) -> Outcome {
        within(self.collection.upsert("touch", 1, None)).await?;
        within(self.collection.touch("touch", Duration::from_secs(2), None)).await?;
        within(self.collection.get("touch", None)).await?;
        self.until_not_found("touch").await?;
        Ok(String::new())
    }

    async fn get_and_touch(&self) -> Outcome {
        within(self.collection.upsert("gat", json!({"n": 1}), None)).await?;
        let got =
            within(self.collection.get_and_touch("gat", Duration::from_secs(2), None)).await?;
        equal(got.content_as::<Value>()?, json!({"n": 1}))?;
        self.until_not_found("gat").await?;
        Ok(String::new())
    }

    async fn until_not_found(&self, key: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while within(self.collection.exists(key, None)).await?.exists() {
            check(Instant::now() < deadline, "the document expires")?;
            sleep(Duration::from_millis(100)).await;
        }
        fails(self.collection.get(key, None).await, ErrorKind::DocumentNotFound)
    }

    async fn durability(&self) -> Outcome {
        let levels = [
            DurabilityLevel::MAJORITY,
            DurabilityLevel::MAJORITY_AND_PERSIST_ACTIVE,
            DurabilityLevel::PERSIST_TO_MAJORITY,
        ];
        for level in levels {
            let key = &format!("durable-{level}");
            let insert = InsertOptions::new().durability_level(level.clone());
            within(self.collection.insert(key, 1, insert)).await?;
            let replace = ReplaceOptions::new().durability_level(level.clone());
            within(self.collection.replace(key, 2, replace)).await?;
            let attribute = UpsertSpecOptions::new().xattr(true);
            let change = [MutateInSpec::upsert("user", key, attribute)?];
            let durably = MutateInOptions::new().durability_level(level.clone());
            within(self.collection.mutate_in(key, &change, durably)).await?;
            let specs = [LookupInSpec::get("user", GetSpecOptions::new().xattr(true))];
            let found = within(self.collection.lookup_in(key, &specs, None)).await?;
            equal(&found.content_as::<String>(0)?, key)?;
            let upsert = UpsertOptions::new().durability_level(level.clone());
            let stored = within(self.collection.upsert(key, 3, upsert)).await?;
            let got = within(self.collection.get(key, None)).await?;
            equal((got.content_as::<i64>()?, got.cas()), (3, stored.cas()))?;
            let remove = RemoveOptions::new().durability_level(level.clone());
            within(self.collection.remove(key, remove)).await?;
            fails(self.collection.get(key, None).await, ErrorKind::DocumentNotFound)?;
        }
        Ok(String::new())
    }

    async fn mutation_tokens(&self) -> Outcome {
        let first = within(self.collection.upsert("token", 1, None)).await?;
        let second = within(self.collection.upsert("token", 2, None)).await?;
        let removal = within(self.collection.remove("token", None)).await?;
        let tokens = (first.mutation_token(), second.mutation_token(), removal.mutation_token());
        let (Some(first), Some(second), Some(removal)) = tokens else {
            return Err("a mutation without a token".into());
        };
        equal(first.bucket_name(), &bucket_name())?;
        equal(first.partition_id(), second.partition_id())?;
        equal(first.partition_uuid(), second.partition_uuid())?;
        check(first.partition_uuid() != 0, "a vbucket uuid")?;
        check(second.sequence_number() > first.sequence_number(), "seqnos grow")?;
        check(removal.sequence_number() > second.sequence_number(), "a removal has a newer token")?;
        // What queries are told to wait for.
        let state = MutationState::new().push_token(first.clone()).push_token(second.clone());
        let place = json!([second.sequence_number(), second.partition_uuid().to_string()]);
        let places = json!({ second.partition_id().to_string(): place });
        equal(serde_json::to_value(state)?, json!({ bucket_name(): places }))?;
        Ok(String::new())
    }

    async fn collections(&self) -> Outcome {
        let manager = self.bucket.collections();
        within(manager.create_scope("rust", None)).await?;
        fails(manager.create_scope("rust", None).await, ErrorKind::ScopeExists)?;
        within(manager.create_collection("rust", "things", None, None)).await?;
        let again = manager.create_collection("rust", "things", None, None).await;
        fails(again, ErrorKind::CollectionExists)?;
        let nowhere = manager.create_collection("nowhere", "things", None, None).await;
        fails(nowhere, ErrorKind::ScopeNotFound)?;
        check(self.lists("rust", Some("things")).await?, "the collection is listed")?;
        let things = self.bucket.scope("rust").collection("things");
        eventually(|| things.upsert("same-key", "in things", None)).await?;
        within(self.collection.upsert("same-key", "in default", None)).await?;
        let got = within(things.get("same-key", None)).await?;
        equal(got.content_as::<String>()?, "in things".to_owned())?;
        equal(self.json("same-key").await?, json!("in default"))?;
        within(manager.drop_collection("rust", "things", None)).await?;
        let dropped = manager.drop_collection("rust", "things", None).await;
        fails(dropped, ErrorKind::CollectionNotFound)?;
        check(!self.lists("rust", Some("things")).await?, "the collection is gone")?;
        // A client cannot know that the collection will not come back, so it may retry until the
        // caller gives up.
        if let Ok(answer) = timeout(Duration::from_secs(2), things.get("same-key", None)).await {
            fails(answer, ErrorKind::CollectionNotFound)?;
        }
        within(manager.drop_scope("rust", None)).await?;
        fails(manager.drop_scope("rust", None).await, ErrorKind::ScopeNotFound)?;
        check(!self.lists("rust", None).await?, "the scope is gone")?;
        equal(self.json("same-key").await?, json!("in default"))?;
        Ok(String::new())
    }

    async fn lists(&self, scope: &str, collection: Option<&str>) -> Result<bool, Failure> {
        let scopes = within(self.bucket.collections().get_all_scopes(None)).await?;
        let found = scopes.iter().find(|each| each.name() == scope);
        Ok(found.is_some_and(|scope| match collection {
            Some(name) => scope.collections().iter().any(|each| each.name() == name),
            None => true,
        }))
    }

    async fn document_20_mib(&self) -> Outcome {
        let value: Vec<u8> = (0..VALUE_BYTES_MAX).map(|index| (index % 251) as u8).collect();
        let (bytes, flags) = raw_binary::encode(&value)?;
        within(self.collection.upsert_raw("large", bytes, flags, None)).await?;
        let got = within(self.collection.get("large", None)).await?;
        check(got.content_as_raw() == (&value[..], flags), "20 MiB come back unchanged")?;
        within(self.collection.remove("large", None)).await?;
        Ok(String::new())
    }

    async fn too_large(&self) -> Outcome {
        let value = vec![0; VALUE_BYTES_MAX + 1];
        let (bytes, flags) = raw_binary::encode(&value)?;
        let refused = self.collection.upsert_raw("too-large", bytes, flags, None).await;
        fails(refused, ErrorKind::ValueTooLarge)?;
        fails(self.collection.get("too-large", None).await, ErrorKind::DocumentNotFound)?;
        Ok(String::new())
    }

    /// The SDK keeps trying to connect until the caller gives up, because a password may become
    /// right, and only its log says why. So the log is what shows that the server refuses at once.
    async fn wrong_password(&self) -> Outcome {
        let log = Log::default();
        let attempt = timeout(
            Duration::from_secs(5),
            open("not the password").with_subscriber(log.subscriber()),
        );
        check(attempt.await.is_err(), "no connection")?;
        check(log.text().contains("authentication error"), "a logged authentication error")?;
        Ok(String::new())
    }
}
