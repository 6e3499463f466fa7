//! What a user with rights in some collections may do: write to open, read shown, and know nothing
//! of hidden.

use std::env;
use std::time::Duration;

use couchbase::error::ErrorKind;
use couchbase::subdoc::lookup_in_specs::LookupInSpec;
use couchbase::subdoc::mutate_in_specs::MutateInSpec;
use serde_json::json;
use tokio::time::timeout;

use super::sub_document_cases::compare;
use super::{Program, open_as};
use crate::checks::{Outcome, check, equal, eventually, fails, within};

const SCOPE: &str = "rights";

impl Program {
    pub(super) async fn rights(&self) -> Outcome {
        let manager = self.bucket.collections();
        within(manager.create_scope(SCOPE, None)).await?;
        for name in ["open", "shown", "hidden"] {
            within(manager.create_collection(SCOPE, name, None, None)).await?;
            let collection = self.bucket.scope(SCOPE).collection(name);
            eventually(|| collection.upsert("d", name, None)).await?;
        }
        let (user, password) = (env::var("ORIBI_LIMITED_USER")?, env::var("ORIBI_PASSWORD")?);
        let cluster = within(open_as(&user, &password, None)).await?;
        let scope = cluster.bucket("default").scope(SCOPE);
        let (open, shown) = (scope.collection("open"), scope.collection("shown"));

        equal(within(open.get("d", None)).await?.content_as::<String>()?, "open".to_owned())?;
        within(open.upsert("d", json!({"n": 1}), None)).await?;
        within(open.mutate_in("d", &[MutateInSpec::increment("n", 1, None)?], None)).await?;
        let found = within(open.lookup_in("d", &[LookupInSpec::get("n", None)], None)).await?;
        compare(&found, 0, &json!(2))?;
        within(open.remove("d", None)).await?;

        equal(within(shown.get("d", None)).await?.content_as::<String>()?, "shown".to_owned())?;
        let no_access = ErrorKind::AuthenticationFailure;
        let refusal = shown.upsert("d", 1, None).await;
        // The server's words and the reference of its log line reach whoever shows the error.
        let text = refusal.as_ref().err().map(ToString::to_string).unwrap_or_default();
        check(
            text.contains("needs the privilege Upsert") && text.contains("xref"),
            "the missing privilege",
        )?;
        fails(refusal, no_access.clone())?;
        fails(shown.insert("new", 1, None).await, no_access.clone())?;
        fails(shown.remove("d", None).await, no_access.clone())?;
        fails(shown.touch("d", Duration::from_secs(100), None).await, no_access.clone())?;
        let change = [MutateInSpec::upsert("n", 1, None)?];
        fails(shown.mutate_in("d", &change, None).await, no_access.clone())?;
        fails(shown.binary().append("d", b"x", None).await, no_access)?;
        let all = self.bucket.scope(SCOPE).collection("shown");
        equal(within(all.get("d", None)).await?.content_as::<String>()?, "shown".to_owned())?;
        // A client cannot know that the collection will not come, so it may retry until the caller
        // gives up.
        let hidden = scope.collection("hidden");
        if let Ok(answer) = timeout(Duration::from_secs(1), hidden.get("d", None)).await {
            fails(answer, ErrorKind::CollectionNotFound)?;
        }
        within(manager.drop_scope(SCOPE, None)).await?;
        Ok(String::new())
    }
}
