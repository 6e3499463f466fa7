//! Random documents of every kind, on any storage.

use std::time::{SystemTime, UNIX_EPOCH};

use oribi_client::{
    Bytes, Client, Collection, DocumentPolicy, MutateInOptions, PathMutation, WriteOptions,
};
use oribi_testkit::Random;

/// Different keys of each collection, so that most are written several times.
const KEYS: u64 = 150;

const VALUE_BYTES_MAX: u64 = 3000;

/// Writes, changes and removes documents, without waiting for the disk.
pub async fn change(client: &Client, collections: &[Collection], random: &mut Random, steps: u64) {
    for _ in 0..steps {
        let collection = &collections[random.below(collections.len() as u64) as usize];
        let key = key(random.below(KEYS));
        match random.below(10) {
            0 | 1 => {
                // It may not be there.
                let _ = client.delete(collection, &key, &WriteOptions::new()).await;
            }
            2 | 3 => attributes(client, collection, &key, random).await,
            _ => {
                let options = WriteOptions::new().flags(random.below(1 << 32) as u32);
                let options = match random.one_in(4) {
                    true => options.expiry(in_an_hour() + random.below(1000) as u32),
                    false => options,
                };
                let written = client.upsert(collection, &key, value(random), &options).await;
                written.expect("it is written");
            }
        }
    }
}

pub fn in_an_hour() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_secs() as u32 + 3600
}

/// Short ones and long ones, of any bytes.
fn key(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let len = 1 + random.below(if number.is_multiple_of(10) { 200 } else { 20 });
    let mut key: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn value(random: &mut Random) -> Bytes {
    let len = random.below(VALUE_BYTES_MAX);
    match random.below(4) {
        0 => Bytes::from(format!(r#"{{"number":{len},"text":"{}"}}"#, "again ".repeat(50))),
        1 => Bytes::from("many times the same ".repeat(len as usize / 20)),
        2 => Bytes::new(),
        _ => (0..len).map(|_| random.below(256) as u8).collect::<Vec<u8>>().into(),
    }
}

/// Attributes of a document, which is made if there is none.
async fn attributes(client: &Client, collection: &Collection, key: &[u8], random: &mut Random) {
    let number = random.below(1000).to_string();
    let both = [
        PathMutation::upsert("user", number.as_bytes()).xattr(),
        PathMutation::upsert("_system", br#"{"deep":[1,2]}"#).xattr(),
    ];
    let changes = &both[..1 + random.below(2) as usize];
    let options = MutateInOptions::new().document(DocumentPolicy::CreateIfMissing);
    client.mutate_in(collection, key, changes, &options).await.expect("attributes are written");
}
