//! Names of the eviction policies.
//!
//! Owns: the names that settings and `bucket.json` use, those of Couchbase's HTTP interface, and
//! those of its STAT. [`EvictionPolicy`] defines their meaning.

use oribi_types::policy::EvictionPolicy;

/// Names in settings and in `bucket.json`.
pub const EVICTION_NAMES: [&str; 4] = ["value", "full", "none", "nru"];

/// Names of one policy.
struct Names {
    policy: EvictionPolicy,
    setting: &'static str,
    http: &'static str,
    stat: &'static str,
}

const NAMES: [Names; 4] = [
    Names {
        policy: EvictionPolicy::Value,
        setting: EVICTION_NAMES[0],
        http: "valueOnly",
        stat: "value_only",
    },
    Names {
        policy: EvictionPolicy::Full,
        setting: EVICTION_NAMES[1],
        http: "fullEviction",
        stat: "full_eviction",
    },
    Names {
        policy: EvictionPolicy::None,
        setting: EVICTION_NAMES[2],
        http: "noEviction",
        stat: "no_eviction",
    },
    Names {
        policy: EvictionPolicy::Nru,
        setting: EVICTION_NAMES[3],
        http: "nruEviction",
        stat: "auto_delete",
    },
];

fn names(policy: EvictionPolicy) -> &'static Names {
    NAMES
        .iter()
        .find(|names| names.policy == policy)
        .expect("every policy has names; a test checks it")
}

/// The policy that a setting names.
pub fn from_setting(name: &str) -> Option<EvictionPolicy> {
    NAMES.iter().find(|names| names.setting == name).map(|names| names.policy)
}

/// The policy's name in settings.
pub fn setting_name(policy: EvictionPolicy) -> &'static str {
    names(policy).setting
}

/// The policy that `evictionPolicy` names.
pub fn from_http(name: &str) -> Option<EvictionPolicy> {
    NAMES.iter().find(|names| names.http == name).map(|names| names.policy)
}

/// The policy's name as `evictionPolicy`.
pub fn http_name(policy: EvictionPolicy) -> &'static str {
    names(policy).http
}

/// The policy's name in STAT.
pub fn stat_name(policy: EvictionPolicy) -> &'static str {
    names(policy).stat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_names() {
        for (number, policy) in EvictionPolicy::ALL.into_iter().enumerate() {
            // A policy that is missing in ALL does not compile here.
            let expected = match policy {
                EvictionPolicy::Value => 0,
                EvictionPolicy::Full => 1,
                EvictionPolicy::None => 2,
                EvictionPolicy::Nru => 3,
            };
            assert_eq!(number, expected);
            assert_eq!(from_setting(setting_name(policy)), Some(policy));
            assert_eq!(from_http(http_name(policy)), Some(policy));
        }
        assert_eq!((from_setting("lru"), from_http("value")), (None, None));
    }
}
