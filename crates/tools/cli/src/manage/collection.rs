//! `oribi collection`: the collections of a bucket.

use std::process::ExitCode;

use clap::Subcommand;
use hyper::Method;
use serde_json::{Value, json};

use super::confirm::Consent;
use super::scope::OfBucket;
use super::table::table;
use super::{done, run};
use crate::duration;
use crate::print;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum CollectionCommand {
    /// List the collections of a bucket.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this scope.
        #[arg(long)]
        scope: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        bucket: OfBucket,
    },
    /// Create a collection.
    Create {
        /// Its path, as scope.collection.
        #[arg(value_parser = parse_path)]
        path: CollectionArgument,
        /// Longest life of its documents, such as 7d or 3600 (seconds); never for no limit whatever
        /// the bucket says.
        #[arg(long, value_name = "TIME", value_parser = parse_max_ttl)]
        max_ttl: Option<i64>,
        #[command(flatten)]
        bucket: OfBucket,
    },
    /// Change how long documents of a collection may live; those that exist keep their expiry.
    Change {
        /// Its path, as scope.collection.
        #[arg(value_parser = parse_path)]
        path: CollectionArgument,
        /// Longest life of its documents, such as 7d or 3600 (seconds); 0 for the bucket's, never
        /// for no limit.
        #[arg(long, value_name = "TIME", value_parser = parse_max_ttl)]
        max_ttl: i64,
        #[command(flatten)]
        bucket: OfBucket,
    },
    /// Remove a collection and its documents.
    #[command(visible_alias = "rm", alias = "delete")]
    Drop {
        /// Its path, as scope.collection.
        #[arg(value_parser = parse_path)]
        path: CollectionArgument,
        #[command(flatten)]
        consent: Consent,
        #[command(flatten)]
        bucket: OfBucket,
    },
}

/// Scope and collection.
#[derive(Clone, Debug)]
pub struct CollectionArgument(String, String);

fn parse_path(text: &str) -> Result<CollectionArgument, String> {
    match text.split_once('.') {
        Some((scope, name)) if !scope.is_empty() && !name.is_empty() => {
            Ok(CollectionArgument(scope.to_owned(), name.to_owned()))
        }
        _ => Err("a collection is named as scope.collection".to_owned()),
    }
}

/// Seconds as the server takes them: 0 for not set, -1 for no limit.
fn parse_max_ttl(text: &str) -> Result<i64, String> {
    if text == "never" {
        return Ok(-1);
    }
    whole_seconds(text).map_err(|error| format!("{error}, or never"))
}

/// A time in seconds.
pub(super) fn whole_seconds(text: &str) -> Result<i64, String> {
    let time = duration::parse(text).filter(|time| time.subsec_nanos() == 0);
    let seconds = time.and_then(|time| i64::try_from(time.as_secs()).ok());
    seconds.ok_or_else(|| "whole seconds, or a time such as 90s, 12h or 7d".to_owned())
}

impl CollectionCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        run(async {
            match self {
                CollectionCommand::List { scope, json, bucket } => {
                    list(&bucket.scopes().await?, scope.as_deref(), json)
                }
                CollectionCommand::Create { path, max_ttl, bucket } => {
                    let CollectionArgument(scope, name) = &path;
                    let mut form = vec![("name", name.clone())];
                    form.extend(max_ttl.map(|seconds| ("maxTTL", seconds.to_string())));
                    bucket.change(Method::POST, &[scope, "collections"], &form).await?;
                    done(&format!("created collection {scope}.{name} in {}", bucket.bucket))
                }
                CollectionCommand::Change { path, max_ttl, bucket } => {
                    let CollectionArgument(scope, name) = &path;
                    let form = [("maxTTL", max_ttl.to_string())];
                    bucket.change(Method::PATCH, &[scope, "collections", name], &form).await?;
                    done(&format!("changed collection {scope}.{name} of {}", bucket.bucket))
                }
                CollectionCommand::Drop { path, consent, bucket } => {
                    let CollectionArgument(scope, name) = &path;
                    let deed = format!("drops collection {scope}.{name} of {}", bucket.bucket);
                    consent
                        .to(&format!("{deed} with its documents"), &format!("{scope}.{name}"))?;
                    bucket.change(Method::DELETE, &[scope, "collections", name], &[]).await?;
                    done(&format!("dropped collection {scope}.{name} of {}", bucket.bucket))
                }
            }
        })
    }
}

fn list(scopes: &[Value], wanted: Option<&str>, as_json: bool) -> anyhow::Result<ExitCode> {
    let scopes = scopes.iter().filter(|scope| wanted.is_none_or(|name| scope["name"] == name));
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    for scope in scopes {
        for collection in scope["collections"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let max_ttl = match collection["maxTTL"].as_i64() {
                None | Some(0) => "-".to_owned(),
                Some(-1) => "never".to_owned(),
                Some(seconds) => format!("{seconds} s"),
            };
            let path = format!("{}.{}", text(&scope["name"]), text(&collection["name"]));
            rows.push([path, text(&collection["uid"]), max_ttl]);
            objects.push(json!({
                "scope": scope["name"],
                "name": collection["name"],
                "uid": collection["uid"],
                "maxTTL": collection["maxTTL"],
            }));
        }
    }
    match as_json {
        true => print::json(&objects)?,
        false => print::bytes(table(["NAME", "ID", "MAX-TTL"], rows).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
