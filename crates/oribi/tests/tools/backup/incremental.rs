//! Chains of backups: what changed, what was lost, and which one is restored.

use serde_json::Value;

use crate::backup::filled::fill;
use crate::backup::table::{assert_equal, remove, table_of, write};
use crate::backup::{Fixture, problems};

#[tokio::test]
async fn an_incremental_backup_has_what_changed() {
    let source = Fixture::start();
    let client = source.client().await;
    fill(&source, &client).await;
    let archive = source.archive();
    let full = source.backup(&["create", &archive]);
    let before = table_of(&client).await;

    let default = client.default_collection();
    write(&client, default, "text", "changed").await;
    remove(&client, default, "json").await;
    let scopes = "/pools/default/buckets/default/scopes";
    let answer = source.admin().delete(&format!("{scopes}/shop/collections/orders"));
    assert_eq!(answer.expect("an answer").status, 200);
    source.create_collections("later", &["things"]);
    let things = client.collection("later.things").await.expect("it exists");
    write(&client, &things, "thing", "1").await;
    let second = source.backup(&["create", &archive]);
    assert_eq!((&second["kind"], &second["parent"]), (&"incremental".into(), &full["id"]));
    assert_eq!((&second["documents"], &second["removals"]), (&2.into(), &1.into()));
    let third = source.backup(&["create", &archive]);
    assert_eq!((&third["documents"], &third["removals"]), (&0.into(), &0.into()));
    assert_eq!(problems(&source, &archive), [""; 0]);

    let target = Fixture::start();
    target.backup(&["restore", &archive]);
    let restored = table_of(&target.client().await).await;
    assert_equal(&table_of(&client).await, &restored);
    assert!(restored.keys().all(|(path, _)| path != "shop.orders"));
    assert!(restored[&("_default._default".to_owned(), b"json".to_vec())].is_removed);

    let earlier = Fixture::start();
    let id = full["id"].as_str().expect("an id");
    earlier.backup(&["restore", &archive, "--at", id]);
    assert_equal(&before, &table_of(&earlier.client().await).await);

    let listed = source.backup(&["list", &archive]);
    let ids = |list: &Value| -> Vec<Value> {
        list.as_array().expect("a list").iter().map(|entry| entry["id"].clone()).collect()
    };
    assert_eq!(ids(&listed), [&full, &second, &third].map(|made| made["id"].clone()));
    let pruned = source.backup(&["prune", &archive, "--keep-last", "1"]);
    assert_eq!(pruned["removed"], Value::Array(vec![]), "the last one needs them");
    let pruned = source.backup_output(&["prune", &archive, "--keep-last", "1"]);
    assert_eq!(crate::backup::text(&pruned.stdout), "nothing to remove\n");
    let anew = source.backup(&["create", &archive, "--full"]);
    assert_eq!(anew["kind"], "full");
    let pruned = source.backup(&["prune", &archive, "--keep-last", "1"]);
    assert_eq!(pruned["removed"].as_array().expect("a list").len(), 3);
    assert_eq!(ids(&source.backup(&["list", &archive])), [anew["id"].clone()]);
    assert_eq!(problems(&source, &archive), [""; 0]);
}

/// A flushed bucket has other histories, so nothing of the earlier backup may come back.
#[tokio::test]
async fn another_history_is_backed_up_anew() {
    let fixture = Fixture::start();
    let buckets = "/pools/default/buckets";
    let settings = [("name", "b"), ("ramQuotaMB", "100"), ("numVBuckets", "8")];
    let archive = fixture.archive();
    fixture.post(buckets, &settings);
    let client = fixture.client_of("b").await;
    for number in 0..40 {
        write(&client, client.default_collection(), &format!("old:{number}"), "old").await;
    }
    fixture.backup(&["create", &archive, "--bucket", "b"]);
    drop(client);
    let answer = fixture.admin().delete(&format!("{buckets}/b")).expect("an answer");
    assert_eq!(answer.status, 200);
    fixture.post(buckets, &settings);
    let client = fixture.client_of("b").await;
    for number in 0..20 {
        write(&client, client.default_collection(), &format!("new:{number}"), "new").await;
    }
    let made = fixture.backup(&["create", &archive, "--bucket", "b"]);
    assert_eq!((&made["kind"], &made["documents"]), (&"incremental".into(), &20.into()));
    assert_eq!(problems(&fixture, &archive), [""; 0]);
    let restored = fixture.backup(&["restore", &archive, "--bucket", "b", "--into", "default"]);
    assert_eq!(restored["written"], 20);
    assert_equal(&table_of(&client).await, &table_of(&fixture.client().await).await);
}
