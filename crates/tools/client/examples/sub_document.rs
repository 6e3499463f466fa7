//! Parts of a document: read and change paths of JSON, and keep extended attributes next to it.
//!
//! Needs a server on this machine with its development user, as `oribi serve` starts one:
//! `cargo run -p oribi-client --example sub_document`.

use std::error::Error;

use oribi_client::{
    Client, ConnectOptions, DocumentPolicy, Lookup, LookupInOptions, MutateInOptions, PathError,
    PathMutation,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(ConnectOptions::new("Administrator", "password", "default")).await
}

/// The steps, on any server.
pub async fn run(options: ConnectOptions) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(options).await?;
    let users = client.default_collection();

    // All of these happen, or none. Attributes come first.
    let changes = [
        PathMutation::upsert("source", br#""signup""#).xattr(),
        PathMutation::upsert("address.city", br#""Kyoto""#).create_path(),
        PathMutation::array_append("tags", br#""new""#).create_path(),
        PathMutation::counter("visits", 1),
    ];
    let create = MutateInOptions::new().document(DocumentPolicy::CreateIfMissing);
    let changed = client.mutate_in(users, b"user:sub", &changes, &create).await?;
    for new in &changed.values {
        println!("path {} is now {}", new.index, String::from_utf8_lossy(&new.value));
    }

    let paths = [
        Lookup::get("source").xattr(),
        Lookup::get("address"),
        Lookup::count("tags"),
        Lookup::get("phone"),
    ];
    let found = client.lookup_in(users, b"user:sub", &paths, &LookupInOptions::new()).await?;
    let found = found.ok_or("the document was just written")?;
    // Each path has its own outcome.
    for value in &found.values {
        match value {
            Ok(value) => println!("{}", String::from_utf8_lossy(value)),
            Err(PathError::NotFound) => println!("nothing is there"),
            Err(other) => return Err((*other).into()),
        }
    }
    Ok(())
}
