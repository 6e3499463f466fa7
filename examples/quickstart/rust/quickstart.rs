//! cargo add couchbase serde_json && cargo add tokio --features macros,rt-multi-thread
use couchbase::authenticator::PasswordAuthenticator;
use couchbase::cluster::Cluster;
use couchbase::options::cluster_options::ClusterOptions;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> couchbase::error::Result<()> {
    let address = std::env::var("ORIBI_CONNSTR").unwrap_or("couchbase://127.0.0.1".into());
    let login = PasswordAuthenticator::new("Administrator", "password");
    let cluster = Cluster::connect(address, ClusterOptions::new(login.into())).await?;
    let documents = cluster.bucket("default").default_collection();

    documents.upsert("greeting", json!({"text": "Hello from Rust"}), None).await?;
    let found: Value = documents.get("greeting", None).await?.content_as()?;
    println!("{}", found["text"].as_str().unwrap_or_default());
    Ok(())
}
