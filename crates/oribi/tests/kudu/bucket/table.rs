//! The table of a bucket as the C++ tool shows it.

use std::collections::BTreeMap;

use oribi_testkit::KuduCluster;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct TableContents {
    /// How many there are.
    pub rows: usize,
    /// Bytes of the body, as each of them says.
    pub body_bytes: usize,
    /// Beginning of the text of the first, where it is JSON.
    pub json: String,
}

/// Every live document by vbucket and key, as its rows say. Keys have no quotes in them.
pub fn documents(cluster: &KuduCluster, table: &str) -> BTreeMap<(u16, String), TableContents> {
    let columns = "vbucket,collection,key,chunk,deleted,body_bytes,json";
    let masters = cluster.master_addresses();
    let columns = format!("-columns={columns}");
    let text = cluster.tool_stdout(&["table", "scan", &masters, table, &columns]).unwrap();
    let mut found: BTreeMap<(u16, String), TableContents> = BTreeMap::new();
    let rows = text.lines().filter(|line| line.starts_with('('));
    // Collection 1 has the events of scopes and collections.
    let is_other = |row: &&str| row.contains("collection=-") || row.contains("collection=1,");
    let rows = rows.filter(|row| !is_other(row) && !row.contains("deleted=true"));
    for row in rows {
        let vbucket = between(row, "vbucket=", ",").parse().unwrap();
        let key = between(row, "key=\"", "\"").to_owned();
        let stored = found.entry((vbucket, key)).or_default();
        stored.rows += 1;
        stored.body_bytes = between(row, "body_bytes=", ",").parse().unwrap();
        if between(row, "chunk=", ",") == "0" {
            stored.json = row.split_once("json=").unwrap().1.trim_end_matches(')').to_owned();
        }
    }
    found
}

fn between<'a>(row: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = row.split_once(before).unwrap_or_else(|| panic!("no {before} in {row}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after} behind {before} in {row}")).0
}
