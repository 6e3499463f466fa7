//! `oribi scope`: the scopes of a bucket.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::Value;

use super::confirm::Consent;
use super::place::AdminPlace;
use super::table::table;
use super::{done, run};
use crate::admin::{path, unless_no_bucket};
use crate::print;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum ScopeCommand {
    /// List the scopes of a bucket.
    #[command(visible_alias = "ls")]
    List {
        /// Print what the server says about them, as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        bucket: OfBucket,
    },
    /// Create a scope.
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        bucket: OfBucket,
    },
    /// Remove a scope with its collections and their documents.
    #[command(visible_alias = "rm", alias = "delete")]
    Drop {
        /// Its name.
        name: String,
        #[command(flatten)]
        consent: Consent,
        #[command(flatten)]
        bucket: OfBucket,
    },
}

/// A bucket of a server.
#[derive(Args, Clone, Debug)]
pub struct OfBucket {
    /// Bucket.
    #[arg(long, help_heading = "Server", default_value = "default")]
    pub bucket: String,
    #[command(flatten)]
    pub place: AdminPlace,
}

impl OfBucket {
    /// The path of its scopes, or of something below.
    pub fn path(&self, rest: &[&str]) -> String {
        path(&[&["pools", "default", "buckets", &self.bucket, "scopes"], rest].concat())
    }

    /// Its scopes and collections.
    pub async fn scopes(&self) -> anyhow::Result<Vec<Value>> {
        let manifest = self.place.find().await?.get(&self.path(&[])).await;
        let mut manifest = manifest.map_err(|error| unless_no_bucket(error, &self.bucket))?;
        match manifest["scopes"].take() {
            Value::Array(scopes) => Ok(scopes),
            _ => Ok(Vec::new()),
        }
    }

    /// Changes something about its scopes.
    pub async fn change(
        &self,
        method: Method,
        rest: &[&str],
        form: &[(&str, String)],
    ) -> anyhow::Result<()> {
        let changed = self.place.find().await?.change(method, &self.path(rest), form).await;
        changed.map_err(|error| unless_no_bucket(error, &self.bucket))
    }
}

impl ScopeCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        run(async {
            match self {
                ScopeCommand::List { json, bucket } => list(&bucket.scopes().await?, json),
                ScopeCommand::Create { name, bucket } => {
                    bucket.change(Method::POST, &[], &[("name", name.clone())]).await?;
                    done(&format!("created scope {name} in bucket {}", bucket.bucket))
                }
                ScopeCommand::Drop { name, consent, bucket } => {
                    let deed = format!("drops scope {name} of bucket {}", bucket.bucket);
                    consent.to(&format!("{deed} with its documents"), &name)?;
                    bucket.change(Method::DELETE, &[&name], &[]).await?;
                    done(&format!("dropped scope {name} of bucket {}", bucket.bucket))
                }
            }
        })
    }
}

fn list(scopes: &[Value], as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        print::json(&scopes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = scopes.iter().map(|scope| {
        let collections = scope["collections"].as_array().map_or(0, Vec::len);
        [scope["name"].as_str().unwrap_or("-").to_owned(), collections.to_string()]
    });
    print::bytes(table(["NAME", "COLLECTIONS"], rows.collect()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
