//! The groups of statistics by name, and the nearest ones to a name that is none.
//!
//! The list serves help and suggestions only; it separates Oribi's groups from those of others. A
//! group is asked for whether it is listed or not, because servers may have more of them; the
//! server decides.

use strsim::damerau_levenshtein;

/// A group of statistics.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Name; empty for the general figures.
    pub name: &'static str,
    /// Arguments after the name.
    pub arguments: &'static str,
    pub about: &'static str,
}

const fn group(name: &'static str, arguments: &'static str, about: &'static str) -> Group {
    Group { name, arguments, about }
}

const OF_ORIBI: &[Group] = &[
    group("", "", "general figures of the server and the bucket"),
    group("vbucket", "[VB]", "state of each vbucket"),
    group("vbucket-details", "[VB]", "items, memory, queue and clocks of each vbucket"),
    group("vbucket-seqno", "[VB]", "sequence numbers of each vbucket"),
    group("collections", "[SCOPE.COLLECTION]", "items, memory and operations of each collection"),
    group("collections-byid", "0xID", "the same of one collection, by its id"),
    group("collections-details", "[VB]", "each collection in each vbucket: long"),
    group("scopes", "[SCOPE]", "the same figures, added up for each scope"),
    group("scopes-byid", "0xID", "the same of one scope, by its id"),
    group("scopes-details", "[VB]", "each scope in each vbucket"),
    group("checkpoint", "[VB]", "checkpoints and cursors of each vbucket"),
    group("memory", "", "where the memory goes"),
    group("hash", "[detail]", "hash table of each vbucket"),
    group("timings", "", "histograms of how long things take"),
    group("warmup", "", "loading after the last start"),
    group("kvstore", "", "the store: reads, writes, failures"),
    group("tasks", "", "background tasks of the bucket"),
    group("connections", "[FD]", "each connection to the server"),
    group("uuid", "", "uuid of the bucket"),
    group("config", "", "settings of the bucket"),
    group("key", "KEY [VB]", "one document's metadata"),
    group("vkey", "KEY [VB]", "the same, compared with the disk"),
    group("reset", "", "sets counters back to 0"),
    group("diskinfo", "[detail]", "sizes of the files"),
    group("failovers", "[VB]", "failover table of each vbucket"),
    group("dcp", "", "change streams"),
    group("dcpagg", "SEPARATOR", "change streams, added up by kind"),
    group("dcp-vbtakeover", "VBUCKET [NAME]", "what a change stream has still to send"),
    group("settings", "", "settings of the server"),
    group("items", "", "items, as memcached counts them"),
    group("slabs", "", "memory, as memcached counts it"),
];

/// Groups that other servers of this protocol have.
const OF_OTHERS: &[Group] = &[
    group("kvtimings", "", "histograms of the store"),
    group("clocks", "", "clocks of the server"),
    group("disk-failures", "", "failures of the store"),
    group("durability-monitor", "VB", "durable writes under way"),
    group("frequency-counters", "", "histograms of how often items are used"),
    group("eviction", "", "histograms of eviction"),
    group("info", "", "abilities of the bucket"),
    group("prev-vbucket", "", "state of each vbucket before the last start"),
    group("range-scans", "[VB]", "open range scans"),
    group("responses", "", "number of answers by status"),
    group("scheduler", "", "histograms of how late tasks run"),
    group("runtimes", "", "histograms of how long tasks run"),
    group("stat-timings", "", "histograms of the groups themselves"),
    group("tasks-all", "", "background tasks of all buckets"),
    group("threads", "", "threads that serve connections"),
    group("vbucket-durability-state", "[VB]", "topology and durable writes of each vbucket"),
    group("workload", "", "task queues"),
    group("allocator", "", "the memory allocator's own report"),
    group("audit", "", "audit log"),
];

fn groups() -> impl Iterator<Item = &'static Group> {
    OF_ORIBI.iter().chain(OF_OTHERS)
}

/// The listed group of this name.
pub fn find(name: &str) -> Option<&'static Group> {
    groups().find(|group| group.name == name)
}

/// True for groups whose JSON would name some figures twice, which not every reader takes.
pub fn repeats_names(name: &str) -> bool {
    matches!(name, "collections" | "collections-byid" | "scopes" | "scopes-byid")
}

/// Up to three listed groups that `name` may have been meant for, the nearest first.
pub fn nearest(name: &str) -> Vec<&'static str> {
    let name = name.to_lowercase().replace('_', "-");
    let tolerated = (name.len() / 3).clamp(1, 4);
    let distance = |group: &'static str| {
        let is_part = !name.is_empty() && name.len() >= 3 && group.contains(&name);
        let edits = damerau_levenshtein(&name, group);
        (is_part || edits <= tolerated).then_some((edits, group))
    };
    let named = groups().map(|group| group.name).filter(|group| !group.is_empty());
    let mut found: Vec<(usize, &'static str)> = named.filter_map(distance).collect();
    found.sort();
    found.truncate(3);
    found.into_iter().map(|(_, group)| group).collect()
}

/// The list, a line each: Oribi's groups, then those that only others have.
pub fn list() -> String {
    let width = groups().map(|group| usage(group).len()).max().unwrap_or(0);
    let lines = |groups: &[Group]| -> String {
        groups.iter().map(|group| format!("{:<width$}  {}\n", usage(group), group.about)).collect()
    };
    let (own, others) = (lines(OF_ORIBI), lines(OF_OTHERS));
    format!("{own}\nOther servers of this protocol also have:\n\n{others}")
}

fn usage(group: &Group) -> String {
    match group.name {
        "" => "(none)".to_owned(),
        name => format!("{name} {}", group.arguments).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Suggestions, and that the list is a list of different groups.

    use super::*;

    #[test]
    fn the_nearest_groups_come_first() {
        assert_eq!(nearest("vbucket-detials"), ["vbucket-details"]);
        assert_eq!(nearest("Collection")[0], "collections");
        assert_eq!(nearest("vbucket_seqno")[0], "vbucket-seqno");
        assert_eq!(nearest("mem"), ["memory"]);
        assert_eq!(nearest("timing")[0], "timings");
        assert!(nearest("scope").starts_with(&["scopes"]));
        assert!(nearest("xyzzy-something-else").is_empty());
        assert!(nearest("").is_empty());
    }

    #[test]
    fn the_list_names_every_group_once() {
        let mut names: Vec<&str> = groups().map(|group| group.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), OF_ORIBI.len() + OF_OTHERS.len());
        assert_eq!(list().lines().count(), names.len() + 3);
        assert!(list().contains("vbucket-seqno [VB]  "), "{}", list());
        assert!(find("checkpoint").is_some() && find("checkpoints").is_none());
    }
}
