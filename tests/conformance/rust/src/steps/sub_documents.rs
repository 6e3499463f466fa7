//! Parts of documents and their attributes: what a table of cases cannot say.

use std::time::Duration;

use couchbase::error::ErrorKind;
use couchbase::options::kv_options::{
    GetOptions, LookupInOptions, MutateInOptions, ReplaceOptions, UpsertOptions,
};
use couchbase::subdoc::lookup_in_specs::{GetSpecOptions, LookupInSpec};
use couchbase::subdoc::macros::{LookupInMacros, MutateInMacros};
use couchbase::subdoc::mutate_in_specs::{MutateInSpec, UpsertSpecOptions};
use serde_json::{Value, json};

use super::Program;
use super::sub_document_cases::{compare, invalid};
use crate::checks::{Failure, Outcome, check, equal, fails, within};

const SPECS_MAX: usize = 16;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Of the document [7], as the server writes it.
const CRC_32C_OF_SEVEN: &str = "0xd1f2ed59";

impl Program {
    /// The cases, and the limit of paths in a request.
    pub(super) async fn look_up_in(&self) -> Outcome {
        within(self.collection.upsert("limit", json!({"a": 1}), None)).await?;
        let specs = vec![LookupInSpec::get("a", None); SPECS_MAX + 1];
        let found = within(self.collection.lookup_in("limit", &specs[1..], None)).await?;
        for index in 0..SPECS_MAX {
            compare(&found, index, &json!(1))?;
        }
        invalid(self.collection.lookup_in("limit", &specs, None).await)?;
        self.run_cases(false).await
    }

    /// The cases, the limit of paths in a request, and CAS.
    pub(super) async fn mutate_in(&self) -> Outcome {
        let old = within(self.collection.upsert("limit", json!({"n": 0}), None)).await?.cas();
        let specs = vec![MutateInSpec::increment("n", 1, None)?; SPECS_MAX + 1];
        invalid(self.collection.mutate_in("limit", &specs, None).await)?;
        let with_cas = || MutateInOptions::new().cas(old);
        let done = within(self.collection.mutate_in("limit", &specs[1..], with_cas())).await?;
        check(done.cas() != old, "a new CAS")?;
        equal(self.json("limit").await?, json!({"n": SPECS_MAX}))?;
        let again = self.collection.mutate_in("limit", &specs[..1], with_cas()).await;
        fails(again, ErrorKind::CasMismatch)?;
        equal(within(self.collection.get("limit", None)).await?.cas(), done.cas())?;
        self.run_cases(true).await
    }

    /// Values that the server fills in: written as an attribute, and read as a virtual one.
    pub(super) async fn macros(&self) -> Outcome {
        let expiring = UpsertOptions::new().expiry(DAY);
        within(self.collection.upsert("macros", json!([7]), expiring)).await?;
        let xattr = || UpsertSpecOptions::new().xattr(true).create_path(true);
        let specs = [
            MutateInSpec::upsert("x.cas", MutateInMacros::CAS, xattr())?,
            MutateInSpec::upsert("x.seqno", MutateInMacros::SeqNo, xattr())?,
            MutateInSpec::upsert("x.crc", MutateInMacros::ValueCrc32c, xattr())?,
        ];
        let options = MutateInOptions::new().preserve_expiry(true);
        let done = within(self.collection.mutate_in("macros", &specs, options)).await?;
        let seqno = done.mutation_token().map(|token| token.sequence_number()).unwrap_or_default();
        let paths: [String; 9] = [
            "x".to_owned(),
            LookupInMacros::Document.into(),
            LookupInMacros::CAS.into(),
            LookupInMacros::SeqNo.into(),
            LookupInMacros::ExpiryTime.into(),
            LookupInMacros::IsDeleted.into(),
            LookupInMacros::ValueSizeBytes.into(),
            LookupInMacros::LastModified.into(),
            LookupInMacros::RevId.into(),
        ];
        let specs = paths.map(attribute);
        let found = within(self.collection.lookup_in("macros", &specs, None)).await?;
        let values: Result<Vec<Value>, _> = (0..9).map(|index| found.content_as(index)).collect();
        let values = values?;
        let [written, about, cas, seqno_read, expiry, deleted, size, modified, revision] =
            &values[..]
        else {
            return Err("nine results".into());
        };
        equal(hexadecimal(&written["cas"])?.swap_bytes(), done.cas())?;
        equal((hexadecimal(&written["seqno"])?, hexadecimal(seqno_read)?), (seqno, seqno))?;
        equal(
            (&written["crc"], &about["value_crc32c"]),
            (&json!(CRC_32C_OF_SEVEN), &json!(CRC_32C_OF_SEVEN)),
        )?;
        equal(
            (hexadecimal(cas)?, deleted, size),
            (done.cas(), &json!(false), &json!("[7]".len())),
        )?;
        equal((&about["CAS"], &about["seqno"]), (cas, seqno_read))?;
        equal(
            (&about["exptime"], &about["value_bytes"], revision),
            (expiry, size, &about["revid"]),
        )?;
        check(expiry.as_u64() > Some(0), "an expiry")?;
        check(modified.as_str().is_some_and(|text| text.parse::<u64>().is_ok()), "a time")?;
        Ok(String::new())
    }

    /// Attributes that outlive their document. This SDK cannot make a document as a deleted one.
    pub(super) async fn deleted_documents(&self) -> Outcome {
        within(self.collection.upsert("removed", json!({"a": 1}), None)).await?;
        for name in ["_system", "user"] {
            self.set_attribute("removed", name, &json!(1)).await?;
        }
        within(self.collection.remove("removed", None)).await?;
        let (system, user) = ([attribute("_system")], [attribute("user")]);
        let refused = self.collection.lookup_in("removed", &system, None).await;
        fails(refused, ErrorKind::DocumentNotFound)?;
        let deleted = || LookupInOptions::new().access_deleted(true);
        let kept = within(self.collection.lookup_in("removed", &system, deleted())).await?;
        compare(&kept, 0, &json!(1))?;
        let gone = within(self.collection.lookup_in("removed", &user, deleted())).await?;
        compare(&gone, 0, &json!("!path-not-found"))?;
        let change = [MutateInSpec::upsert("_system", 2, UpsertSpecOptions::new().xattr(true))?];
        let options = MutateInOptions::new().access_deleted(true);
        within(self.collection.mutate_in("removed", &change, options)).await?;
        let kept = within(self.collection.lookup_in("removed", &system, deleted())).await?;
        compare(&kept, 0, &json!(2))?;
        fails(self.collection.get("removed", None).await, ErrorKind::DocumentNotFound)?;
        Ok(String::new())
    }

    pub(super) async fn projections(&self) -> Outcome {
        let mut document = json!({"n": 41, "a": {"b": [1, 2], "c": 3}});
        let (mut expected, mut fields) = (json!({"n": 41}), vec!["n".to_owned()]);
        for number in 0..SPECS_MAX {
            let name = format!("f{number}");
            document[&name] = json!(number);
            expected[&name] = json!(number);
            fields.push(name);
        }
        let key = "projections";
        let expiring = UpsertOptions::new().expiry(DAY);
        let stored = within(self.collection.upsert(key, &document, expiring)).await?;
        let some = ["n", "a.b", "nothing"].map(str::to_owned).to_vec();
        let got = within(self.collection.get(key, GetOptions::new().projections(some))).await?;
        equal(got.content_as::<Value>()?, json!({"n": 41, "a": {"b": [1, 2]}}))?;
        equal(got.cas(), stored.cas())?;
        // More fields than a request has paths: the SDK reads the whole document.
        let got = within(self.collection.get(key, GetOptions::new().projections(fields))).await?;
        equal(got.content_as::<Value>()?, expected)?;
        let one = || GetOptions::new().projections(vec!["n".to_owned()]);
        let got = within(self.collection.get(key, one().expiry(true))).await?;
        equal(got.content_as::<Value>()?, json!({"n": 41}))?;
        check(got.expiry_time().is_some(), "an expiry beside a projection")?;
        fails(self.collection.get("never-written", one()).await, ErrorKind::DocumentNotFound)?;
        Ok(String::new())
    }

    pub(super) async fn preserve_expiry(&self) -> Outcome {
        let (key, document) = ("preserved", json!({"n": 1}));
        let expiry = async || -> Result<_, Failure> {
            let got = within(self.collection.get(key, GetOptions::new().expiry(true))).await?;
            Ok(got.expiry_time().copied())
        };
        let set = [MutateInSpec::upsert("n", 2, None)?];
        within(self.collection.upsert(key, &document, UpsertOptions::new().expiry(DAY))).await?;
        let first = expiry().await?;
        check(first.is_some(), "an expiry")?;
        let preserved = UpsertOptions::new().preserve_expiry(true);
        within(self.collection.upsert(key, &document, preserved)).await?;
        equal(expiry().await?, first)?;
        let preserved = ReplaceOptions::new().preserve_expiry(true);
        within(self.collection.replace(key, &document, preserved)).await?;
        equal(expiry().await?, first)?;
        let preserved = MutateInOptions::new().preserve_expiry(true);
        within(self.collection.mutate_in(key, &set, preserved)).await?;
        equal(expiry().await?, first)?;
        let later = MutateInOptions::new().expiry(2 * DAY);
        within(self.collection.mutate_in(key, &set, later)).await?;
        check(expiry().await? > first, "a later expiry")?;
        within(self.collection.upsert(key, &document, None)).await?;
        // The SDK shows "none" as the time 0.
        check(expiry().await?.is_none_or(|time| time.timestamp() == 0), "no expiry")?;
        Ok(String::new())
    }
}

fn attribute(path: impl Into<String>) -> LookupInSpec {
    LookupInSpec::get(path, GetSpecOptions::new().xattr(true))
}

fn hexadecimal(text: &Value) -> Result<u64, Failure> {
    let digits = text.as_str().unwrap_or_default().trim_start_matches("0x");
    Ok(u64::from_str_radix(digits, 16)?)
}
