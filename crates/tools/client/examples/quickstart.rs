//! The first steps: connect, write, read, change with a CAS, count, and tell errors apart.
//!
//! Needs a server on this machine with its development user, as `oribi serve` starts one:
//! `cargo run -p oribi-client --example quickstart`.

use std::error::Error;

use oribi_client::{
    Bytes, Client, ClientError, ConnectOptions, CounterOptions, RejectionKind, WriteOptions,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(ConnectOptions::new("Administrator", "password", "default")).await
}

/// The steps, on any server.
pub async fn run(options: ConnectOptions) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(options).await?;
    let users = client.default_collection();

    let ann = Bytes::from_static(br#"{"name":"Ann"}"#);
    let written = client.upsert(users, b"user:1", ann, &WriteOptions::json()).await?;
    println!("written, the CAS is {:#x}", written.cas.0);

    let user = client.get(users, b"user:1").await?.ok_or("it was just written")?;
    println!("read {}", String::from_utf8_lossy(&user.value));

    // Only if no client changed it concurrently.
    let unchanged = WriteOptions::json().cas(user.cas);
    let anne = Bytes::from_static(br#"{"name":"Anne"}"#);
    client.replace(users, b"user:1", anne.clone(), &unchanged).await?;
    match client.replace(users, b"user:1", anne, &unchanged).await {
        Err(ClientError::Rejected(RejectionKind::Exists)) => println!("that CAS is stale now"),
        other => return Err(format!("a stale CAS was accepted: {other:?}").into()),
    }

    let visit = CounterOptions::increment(1).initial(1).expiry(3600);
    let visits = client.counter(users, b"visits", &visit).await?;
    println!("visit number {}", visits.value);

    client.delete(users, b"user:1", &WriteOptions::new()).await?;
    match client.get(users, b"user:1").await? {
        None => println!("gone"),
        Some(found) => return Err(format!("still there: {found:?}").into()),
    }
    Ok(())
}
