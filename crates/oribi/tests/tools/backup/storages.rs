//! Buckets of every storage of one server, filled at random, backed up and restored into each
//! other.
//!
//! A bucket on Kudu is in `tests/kudu_bucket/backup.rs`.

use oribi_testkit::Random;

use crate::backup::random::change;
use crate::backup::table::{assert_equal, documents_of, table_of};
use crate::backup::{Fixture, problems};

#[tokio::test]
async fn random_documents_round_trip_over_every_storage() {
    let fixture = Fixture::start();
    let storages = ["log", "memory"];
    for storage in storages {
        let form = [("name", storage), ("storage", storage), ("ramQuotaMB", "100")];
        fixture.post("/pools/default/buckets", &form);
    }
    for (seed, from) in (1..).zip(storages) {
        let mut random = Random::new(seed);
        let client = fixture.client_of(from).await;
        let path = format!("/pools/default/buckets/{from}/scopes");
        fixture.post(&path, &[("name", "shop")]);
        fixture.post(&format!("{path}/shop/collections"), &[("name", "orders")]);
        let orders = client.collection("shop.orders").await.expect("it exists");
        let collections = [client.default_collection().clone(), orders];
        let archive = fixture.path(from).to_str().expect("text").to_owned();
        for (steps, kind) in [(500, "full"), (100, "incremental"), (30, "incremental")] {
            change(&client, &collections, &mut random, steps).await;
            let made = fixture.backup(&["create", &archive, "--bucket", from]);
            assert_eq!(made["kind"], kind, "of {from}");
        }
        assert_eq!(problems(&fixture, &archive), [""; 0]);
        let expected = table_of(&client).await;
        let has_tombstones = expected.values().any(|version| version.is_removed);
        assert!(has_tombstones || from == "memory", "seed {seed}");
        for to in storages {
            let into = format!("{from}-{to}");
            let form = [("name", &*into), ("storage", to), ("ramQuotaMB", "100")];
            fixture.post("/pools/default/buckets", &form);
            let restore = ["restore", archive.as_str(), "--bucket", from, "--into", &into];
            let restored = fixture.backup(&restore);
            assert_eq!(restored["skipped"], 0, "{into}");
            let found = table_of(&fixture.client_of(&into).await).await;
            match (from, to) {
                ("log", "log") => assert_equal(&expected, &found),
                _ => assert_equal(&documents_of(&expected), &documents_of(&found)),
            }
        }
    }
}
