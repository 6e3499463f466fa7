//! One sample of a server: the figures of `oribi top` at one moment.
//!
//! It owns the list of their statistics. A figure that a server does not send is 0, so the view
//! works with any server of this protocol; no input makes reading fail.

use std::collections::HashMap;
use std::time::Instant;

use oribi_client::Stat;

use crate::stats::clean;

/// Operations on documents since the server began to count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Operations {
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    /// Touches; a server does not count them per collection.
    pub touches: u64,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct CollectionSample {
    pub path: String,
    pub operations: Operations,
    pub items: u64,
    /// Bytes of memory for them.
    pub memory_bytes: u64,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct BucketSample {
    pub name: String,
    /// Operations on its documents.
    pub operations: Operations,
    /// Reads that found the document.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    pub items: u64,
    /// Bytes of memory in use.
    pub memory_bytes: u64,
    /// Bytes of memory that it may use.
    pub quota_bytes: u64,
    /// Mutations that were not persisted yet.
    pub queue_items: u64,
    /// Mutations that were persisted since the server started.
    pub persisted: u64,
    /// Documents that were read from the store because a request needed them.
    pub fetched: u64,
    /// Part of the documents whose values are in memory, in per cent.
    pub resident_percent: u64,
    /// Documents whose values are compressed in memory.
    pub dense: u64,
    /// Change streams, each of one vbucket.
    pub streams: u64,
    /// Changes that they have still to send.
    pub stream_lag: u64,
    /// Its collections, in the order of the manifest.
    pub collections: Vec<CollectionSample>,
}

/// The server as a whole.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ServerSample {
    /// Version that it names.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    pub connections: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Commands of any protocol; those without a document too.
    pub commands: u64,
    /// Of these, commands of memcached's text protocol.
    pub text_commands: u64,
    /// Of these, meta commands.
    pub meta_commands: u64,
}

#[derive(Clone, Debug)]
pub struct TopSample {
    pub at: Instant,
    pub server: ServerSample,
    /// Its buckets that the user may read.
    pub buckets: Vec<BucketSample>,
}

fn number(stat: &Stat<'_>) -> u64 {
    std::str::from_utf8(stat.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl ServerSample {
    /// Takes a figure of the general group, if it is one of the server.
    pub fn take(&mut self, stat: &Stat<'_>) {
        let place = match stat.name {
            b"version" => return self.version = clean(stat.value),
            b"uptime" => &mut self.uptime_s,
            b"curr_connections" => &mut self.connections,
            b"bytes_read" => &mut self.received_bytes,
            b"bytes_written" => &mut self.sent_bytes,
            b"cmd_total" => &mut self.commands,
            b"cmd_text" => &mut self.text_commands,
            b"cmd_meta" => &mut self.meta_commands,
            _ => return,
        };
        *place = number(stat);
    }
}

impl BucketSample {
    /// A bucket without figures.
    pub fn named(name: &str) -> BucketSample {
        BucketSample { name: name.to_owned(), ..BucketSample::default() }
    }

    /// Takes a figure of the general group, if it is one of the bucket.
    pub fn take(&mut self, stat: &Stat<'_>) {
        let place = match stat.name {
            b"cmd_get" => &mut self.operations.gets,
            b"cmd_set" => &mut self.operations.sets,
            // Deletions are counted by their outcome only.
            b"delete_hits" | b"delete_misses" => {
                self.operations.deletes = self.operations.deletes.saturating_add(number(stat));
                return;
            }
            b"cmd_touch" => &mut self.operations.touches,
            b"get_hits" => &mut self.hits,
            b"get_misses" => &mut self.misses,
            b"curr_items" => &mut self.items,
            b"mem_used" => &mut self.memory_bytes,
            b"ep_max_size" => &mut self.quota_bytes,
            b"ep_queue_size" => &mut self.queue_items,
            b"ep_total_persisted" => &mut self.persisted,
            b"ep_bg_fetched" => &mut self.fetched,
            b"ep_dense_num" => &mut self.dense,
            b"vb_active_perc_mem_resident" => &mut self.resident_percent,
            _ => return,
        };
        *place = number(stat);
    }
}

impl BucketSample {
    /// Takes a figure of the group `dcpagg`, if it is one of all streams together.
    pub fn take_stream(&mut self, stat: &Stat<'_>) {
        let place = match stat.name {
            b":total:activestream_count" => &mut self.streams,
            b":total:items_remaining" => &mut self.stream_lag,
            _ => return,
        };
        *place = number(stat);
    }
}

/// Reads the group `collections`, whose figures come as `0xSCOPE:0xCOLLECTION:figure`.
#[derive(Debug, Default)]
pub struct CollectionReader {
    found: Vec<NamedCollection>,
    index: HashMap<Box<[u8]>, usize>,
}

#[derive(Debug, Default)]
struct NamedCollection {
    scope: String,
    name: String,
    sample: CollectionSample,
}

impl CollectionReader {
    /// Takes a figure, if it is one of a collection.
    pub fn take(&mut self, stat: &Stat<'_>) {
        let Some(colon) = stat.name.iter().rposition(|byte| *byte == b':') else { return };
        let (owner, figure) = (&stat.name[..colon], &stat.name[colon + 1..]);
        if !owner.contains(&b':') {
            return;
        }
        let position = match self.index.get(owner) {
            Some(position) => *position,
            None => {
                self.found.push(NamedCollection::default());
                self.index.insert(owner.into(), self.found.len() - 1);
                self.found.len() - 1
            }
        };
        let NamedCollection { scope, name, sample } = &mut self.found[position];
        let place = match figure {
            b"name" => return *name = clean(stat.value),
            b"scope_name" => return *scope = clean(stat.value),
            b"items" => &mut sample.items,
            b"collections_mem_used" => &mut sample.memory_bytes,
            b"ops_get" => &mut sample.operations.gets,
            b"ops_store" => &mut sample.operations.sets,
            b"ops_delete" => &mut sample.operations.deletes,
            _ => return,
        };
        *place = number(stat);
    }

    /// The collections that were named.
    pub fn finish(self) -> Vec<CollectionSample> {
        let named = self.found.into_iter().filter(|found| !found.name.is_empty());
        named
            .map(|NamedCollection { scope, name, sample }| CollectionSample {
                path: format!("{scope}.{name}"),
                ..sample
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    //! Figures as servers send them, and nonsense.

    use super::*;

    #[test]
    fn known_figures_are_taken() {
        let (mut server, mut bucket) = (ServerSample::default(), BucketSample::named("b"));
        for (name, value) in [
            ("version", "1.6\x1b"),
            ("uptime", "60"),
            ("curr_connections", "3"),
            ("cmd_get", "10"),
            ("cmd_set", "20"),
            ("delete_hits", "2"),
            ("delete_misses", "1"),
            ("get_hits", "9"),
            ("mem_used", "not a number"),
            ("ep_max_size", "18446744073709551615"),
            ("unknown", "1"),
        ] {
            let stat = Stat { name: name.as_bytes(), value: value.as_bytes() };
            server.take(&stat);
            bucket.take(&stat);
        }
        assert_eq!(
            (server.version.as_str(), server.uptime_s, server.connections),
            ("1.6\\x1b", 60, 3)
        );
        assert_eq!(bucket.operations, Operations { gets: 10, sets: 20, deletes: 3, touches: 0 });
        assert_eq!((bucket.hits, bucket.memory_bytes, bucket.quota_bytes), (9, 0, u64::MAX));
    }

    #[test]
    fn collections_are_put_together() {
        let mut reader = CollectionReader::default();
        for (name, value) in [
            ("manifest_uid", "4"),
            ("0x0:0x0:name", "_default"),
            ("0x8:0x9:name", "packages"),
            ("0x0:0x0:items", "7"),
            ("0x0:0x0:scope_name", "_default"),
            ("0x8:0x9:items", "8"),
            ("0x8:0x9:ops_get", "100"),
            ("0x8:0x9:collections_mem_used", "4096"),
            ("0x8:0x9:scope_name", "debian"),
            ("0x8:name", "a scope"),
            ("0x8:0xa:items", "1"),
            (":", "1"),
            ("::", "1"),
        ] {
            reader.take(&Stat { name: name.as_bytes(), value: value.as_bytes() });
        }
        let collections = reader.finish();
        let paths: Vec<&str> = collections.iter().map(|collection| &*collection.path).collect();
        assert_eq!(paths, ["_default._default", "debian.packages"]);
        assert_eq!((collections[1].items, collections[1].memory_bytes), (8, 4096));
        assert_eq!(collections[1].operations.gets, 100);
    }
}
