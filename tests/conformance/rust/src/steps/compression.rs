//! Documents that one client compresses and another, which did not negotiate it, reads and changes.

use couchbase::collection::Collection;
use couchbase::options::cluster_options::CompressionMode;
use couchbase::subdoc::lookup_in_specs::{GetSpecOptions, LookupInSpec};
use couchbase::subdoc::mutate_in_specs::{MutateInSpec, UpsertSpecOptions};
use couchbase::transcoding::raw_binary;
use serde_json::{Value, json};

use super::{Program, bucket_name, open_as};
use crate::checks::{Failure, Outcome, equal, within};

impl Program {
    pub(super) async fn compression(&self) -> Outcome {
        let (user, password) = (std::env::var("ORIBI_USER")?, std::env::var("ORIBI_PASSWORD")?);
        let cluster = within(open_as(&user, &password, Some(CompressionMode::Disabled))).await?;
        let without = cluster.bucket(bucket_name()).default_collection();
        let readers = [&self.collection, &without];
        let text = "compressible ".repeat(400);

        let document = json!({"n": 1, "text": text});
        within(self.collection.upsert("compressed", &document, None)).await?;
        equal(
            datatype(&without, "compressed").await?,
            ["json", "snappy"].map(str::to_owned).into(),
        )?;
        for reader in readers {
            equal(&json_of(reader, "compressed").await?, &document)?;
            let specs = [LookupInSpec::get("text", None)];
            let found = within(reader.lookup_in("compressed", &specs, None)).await?;
            equal(found.content_as::<String>(0)?, text.clone())?;
        }
        let changes = [
            MutateInSpec::increment("n", 1, None)?,
            MutateInSpec::upsert("user", 1, UpsertSpecOptions::new().xattr(true))?,
        ];
        within(without.mutate_in("compressed", &changes, None)).await?;
        for reader in readers {
            equal(json_of(reader, "compressed").await?, json!({"n": 2, "text": text}))?;
        }
        within(without.upsert("plain", &document, None)).await?;
        equal(datatype(&self.collection, "plain").await?, vec!["json".to_owned()])?;
        equal(&json_of(&self.collection, "plain").await?, &document)?;

        let (bytes, flags) = raw_binary::encode(text.as_bytes())?;
        within(self.collection.upsert_raw("bytes", bytes, flags, None)).await?;
        within(without.binary().append("bytes", b"-end", None)).await?;
        within(self.collection.binary().prepend("bytes", text.as_bytes(), None)).await?;
        for reader in readers {
            let got = within(reader.get("bytes", None)).await?;
            equal(got.content_as_raw().0, format!("{text}{text}-end").as_bytes())?;
        }
        Ok(String::new())
    }
}

async fn json_of(collection: &Collection, key: &str) -> Result<Value, Failure> {
    Ok(within(collection.get(key, None)).await?.content_as()?)
}

/// Stored form of the document.
async fn datatype(collection: &Collection, key: &str) -> Result<Vec<String>, Failure> {
    let specs = [LookupInSpec::get("$document.datatype", GetSpecOptions::new().xattr(true))];
    let found = within(collection.lookup_in(key, &specs, None)).await?;
    let mut names: Vec<String> = found.content_as(0)?;
    names.sort();
    Ok(names)
}
