//! A cluster over TLS: several seeds, an authority to trust, and which node has which key.
//!
//! `cargo run -p oribi-client --example cluster_tls -- USER PASSWORD CA.PEM HOST:PORT [HOST:PORT
//! ...]`, with the TLS ports of the nodes (usually 11207).

use std::error::Error;
use std::time::Duration;

use oribi_client::{
    Bytes, Client, ClientTls, ConnectOptions, DurabilityLevel, Persistence, TlsOptions,
    WriteOptions,
};

const USAGE: &str = "cluster_tls USER PASSWORD CA.PEM HOST:PORT [HOST:PORT ...]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [user, password, ca, first, seeds @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let tls = ClientTls::load(&TlsOptions::new().ca(ca))?;
    let (host, port) = place(first)?;
    let mut options = ConnectOptions::new(user, password, "default")
        .host(host)
        .port(port)
        .tls(tls)
        .operation_timeout(Duration::from_secs(2));
    for seed in seeds {
        let (host, port) = place(seed)?;
        options = options.seed(host, port);
    }
    run(options).await
}

fn place(argument: &str) -> Result<(&str, u16), Box<dyn Error>> {
    let (host, port) = argument.rsplit_once(':').ok_or(USAGE)?;
    Ok((host, port.parse()?))
}

/// The steps, on any cluster.
pub async fn run(options: ConnectOptions) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(options).await?;
    let map = client.config();
    println!("{} vbuckets on {} nodes", map.vbucket_count(), map.nodes.len());

    let collection = client.default_collection();
    let durable = WriteOptions::json().durability(DurabilityLevel::PersistToMajority);
    for key in ["user:1", "user:2", "user:3"] {
        let vbid = map.vbucket_of(key.as_bytes());
        match map.active_node(vbid) {
            Some(node) => println!("{key} is in {vbid} on {node}"),
            None => println!("{key} is in {vbid}, which no node serves now"),
        }
        // The client follows the map by itself, also when it changes concurrently.
        let value = Bytes::from_static(b"{}");
        let written = client.upsert(collection, key.as_bytes(), value, &durable).await?;
        if let Some(mutation) = written.mutation {
            let state = client.persistence(&mutation).await?;
            println!("{key} is on disk: {}", state == Persistence::Persisted);
        }
    }
    Ok(())
}
