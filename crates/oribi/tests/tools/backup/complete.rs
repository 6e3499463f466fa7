//! A restored bucket is the bucket.

use oribi_client::{Bytes, RejectionKind};

use crate::backup::filled::fill;
use crate::backup::table::{assert_equal, remove, table_of, write};
use crate::backup::{Fixture, problems};

// Invariant: A restored bucket equals the source, except histories and seqnos of vbuckets.
#[tokio::test]
async fn a_restore_fills_an_empty_server() {
    let source = Fixture::start();
    let client = source.client().await;
    fill(&source, &client).await;
    let archive = source.archive();
    let made = source.backup(&["create", &archive]);
    assert_eq!(made["kind"], "full");
    assert_eq!(problems(&source, &archive), [""; 0]);

    let target = Fixture::start();
    let dry = target.backup(&["restore", &archive, "--dry-run"]);
    assert_eq!((&dry["documents"], &dry["written"]), (&made["documents"], &0.into()));
    let client_of_target = target.client().await;
    assert!(table_of(&client_of_target).await.is_empty(), "nothing was written");
    let restored = target.backup(&["restore", &archive]);
    assert_eq!(restored["skipped"], 0);
    assert_eq!(restored["documents"], made["documents"]);

    let expected = table_of(&client).await;
    assert!(
        expected.len() > 300 && expected.values().filter(|version| version.is_removed).count() >= 4
    );
    assert_equal(&expected, &table_of(&client_of_target).await);
    let scopes = |fixture: &Fixture| {
        let path = "/pools/default/buckets/default/scopes";
        let mut names = Vec::new();
        let answer = fixture.admin().get(path).expect("an answer").json().expect("JSON");
        for scope in answer["scopes"].as_array().expect("a list") {
            names.push(format!("{}", scope["name"]));
            for collection in scope["collections"].as_array().expect("a list") {
                names.push(format!(
                    "{}.{} {}",
                    scope["name"], collection["name"], collection["maxTTL"]
                ));
            }
        }
        names.sort();
        names
    };
    assert_eq!(scopes(&source), scopes(&target));
    assert!(scopes(&source).iter().any(|name| name.contains("7200")));

    // Once more: everything is there.
    let restored = target.backup(&["restore", &archive]);
    assert_eq!(restored["written"], 0);
    assert_equal(&expected, &table_of(&client_of_target).await);
}

/// Parts have vbuckets, connections and their own segments, however many there are.
#[tokio::test]
async fn any_job_count_makes_the_same_backup_and_bucket() {
    let source = Fixture::start();
    let client = source.client().await;
    fill(&source, &client).await;
    let archive = source.archive();
    let small = ["create", archive.as_str(), "--segment-kib", "4"];
    let create = |jobs: &str| source.backup(&[&small[..], &["--jobs", jobs]].concat());
    assert_eq!(create("3")["kind"], "full");
    for number in 0..100 {
        let key = format!("key:{number}");
        write(&client, client.default_collection(), &key, "changed").await;
    }
    remove(&client, client.default_collection(), "key:7").await;
    assert_eq!(create("64")["kind"], "incremental");
    write(&client, client.default_collection(), "key:7", "again").await;
    assert_eq!(create("1")["documents"], 1);
    assert_eq!(problems(&source, &archive), [""; 0]);
    let expected = table_of(&client).await;
    for jobs in ["1", "5"] {
        let target = Fixture::start();
        let restore = ["restore", archive.as_str(), "--jobs", jobs];
        let dry = target.backup(&[&restore[..], &["--dry-run"]].concat());
        let restored = target.backup(&restore);
        assert_eq!(
            (&dry["documents"], &dry["bytes"]),
            (&restored["documents"], &restored["bytes"])
        );
        assert_equal(&expected, &table_of(&target.client().await).await);
    }
}

#[tokio::test]
async fn newer_documents_stay_unless_overwritten() {
    let fixture = Fixture::start();
    let client = fixture.client().await;
    let default = client.default_collection();
    write(&client, default, "a", "old").await;
    write(&client, default, "b", "old").await;
    let archive = fixture.archive();
    fixture.backup(&["create", &archive]);
    write(&client, default, "a", "new").await;
    remove(&client, default, "b").await;
    let value = async |key: &str| {
        let document = client.get(default, key.as_bytes()).await.expect("an answer");
        document.map(|document| document.value)
    };
    let restored = fixture.backup(&["restore", &archive, "--skip-newer"]);
    assert_eq!((&restored["written"], &restored["skipped"]), (&0.into(), &2.into()));
    assert_eq!((value("a").await, value("b").await), (Some(Bytes::from_static(b"new")), None));
    let restored = fixture.backup(&["restore", &archive, "--overwrite"]);
    assert_eq!(restored["written"], 2);
    let old = Some(Bytes::from_static(b"old"));
    assert_eq!((value("a").await, value("b").await), (old.clone(), old));
}

#[tokio::test]
async fn buckets_are_created_with_lww_and_settings() {
    let fixture = Fixture::start();
    let buckets = "/pools/default/buckets";
    let settings = [
        ("name", "source"),
        ("ramQuotaMB", "100"),
        ("conflictResolutionType", "lww"),
        ("evictionPolicy", "fullEviction"),
        ("compressionMode", "active"),
        ("numVBuckets", "16"),
    ];
    fixture.post(buckets, &settings);
    let client = fixture.client_of("source").await;
    for number in 0..50 {
        write(&client, client.default_collection(), &number.to_string(), "value").await;
    }
    let archive = fixture.archive();
    fixture.backup(&["create", &archive, "--bucket", "source"]);
    let restore = ["restore", &archive, "--bucket", "source", "--into", "copy"];
    let error = fixture.backup_fails(&restore);
    assert!(error.contains("copy"), "{error}");
    let create = ["--create-bucket", "100"];
    let restored = fixture.backup(&[&restore[..], &create].concat());
    assert_eq!((&restored["written"], &restored["skipped"]), (&50.into(), &0.into()));
    let copy = fixture.client_of("copy").await;
    assert_equal(&table_of(&client).await, &table_of(&copy).await);
    let shown = |name: &str| {
        let settings = fixture.admin().get(&format!("{buckets}/{name}")).expect("an answer");
        let settings = settings.json().expect("JSON");
        settings_of(&settings)
    };
    assert_eq!(shown("source"), shown("copy"));
    assert_eq!(shown("copy")[0], "lww");
}

fn settings_of(bucket: &serde_json::Value) -> Vec<serde_json::Value> {
    ["conflictResolutionType", "evictionPolicy", "compressionMode", "numVBuckets", "bucketType"]
        .map(|name| bucket[name].clone())
        .to_vec()
}

#[tokio::test]
async fn a_part_is_backed_up_and_a_part_restored() {
    let source = Fixture::start();
    source.create_collections("shop", &["orders", "carts"]);
    let client = source.client().await;
    for path in ["shop.orders", "shop.carts", "_default._default"] {
        let collection = client.collection(path).await.expect("it exists");
        for key in ["a:1", "a:2", "b:1"] {
            write(&client, &collection, key, path).await;
        }
    }
    let archive = source.archive();
    let made = source.backup(&[
        "create",
        &archive,
        "--collection",
        "shop.orders",
        "--collection",
        "shop.carts",
    ]);
    assert_eq!(made["documents"], 6);
    let target = Fixture::start();
    let part = ["--collection", "shop.orders", "--key-pattern", "^a:"];
    let restored = target.backup(&[&["restore", &archive][..], &part].concat());
    assert_eq!(restored["documents"], 2);
    let client = target.client().await;
    let table = table_of(&client).await;
    let keys: Vec<_> = table.keys().map(|(path, key)| (path.as_str(), key.as_slice())).collect();
    assert_eq!(keys, [("shop.orders", &b"a:1"[..]), ("shop.orders", b"a:2")]);
    assert!(
        client
            .collection("shop.carts")
            .await
            .is_err_and(|error| { error.rejection() == Some(RejectionKind::UnknownCollection) })
    );
    let error = target.backup_fails(&["restore", &archive, "--collection", "_default"]);
    assert!(error.contains("no collection _default._default"), "{error}");

    let whole = source.path("whole").to_str().expect("text").to_owned();
    let made = source.backup(&["create", &whole, "--key-pattern", ":1$"]);
    assert_eq!(made["documents"], 6);
}

#[tokio::test]
async fn an_encrypted_archive_needs_its_key() {
    let fixture = Fixture::start();
    let client = fixture.client().await;
    write(&client, client.default_collection(), "secret-key", "secret-value").await;
    let archive = fixture.archive();
    let [key, other] = ["key", "other"].map(|name| fixture.path(name));
    std::fs::write(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").expect("a file");
    std::fs::write(&other, "BBECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").expect("a file");
    let [key, other] = [&key, &other].map(|path| path.to_str().expect("text"));
    fixture.backup(&["create", &archive, "--key-file", key]);
    fixture.backup(&["create", &archive, "--key-file", key]);
    for (arguments, expected) in [
        (&["restore", archive.as_str()][..], "is encrypted"),
        (&["list", &archive], "is encrypted"),
        (&["restore", &archive, "--key-file", other], "another key"),
        (&["create", &archive, "--key-file", other], "another key"),
    ] {
        let error = fixture.backup_fails(arguments);
        assert!(error.contains(expected), "{error}");
    }
    let target = Fixture::start();
    let restored = target.backup(&["restore", &archive, "--key-file", key]);
    assert_eq!(restored["written"], 1);
    assert_eq!(fixture.backup(&["verify", &archive, "--key-file", key])["backups"], 2);
}
