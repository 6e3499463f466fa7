//! Refusals of a group, each as one line that says what to do instead.

use std::fmt;

use oribi_client::{ClientError, RejectionKind};

use super::groups;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatsRejection {
    text: String,
    /// True when the user asked for something that does not exist.
    pub is_usage: bool,
}

impl fmt::Display for StatsRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StatsRejection {}

/// Explains the error of asking `peer` for a group, if it is a refusal; else gives it back.
pub fn explain(error: anyhow::Error, peer: &str, group: &str, argument: &str) -> anyhow::Error {
    match error.downcast_ref::<ClientError>().and_then(ClientError::rejection) {
        Some(refused) => refusal(refused, peer, group, argument).into(),
        None => error,
    }
}

fn refusal(refused: RejectionKind, peer: &str, group: &str, argument: &str) -> StatsRejection {
    let known = groups::find(group);
    let usage = |text| StatsRejection { text, is_usage: true };
    let failure = |text| StatsRejection { text, is_usage: false };
    match refused {
        RejectionKind::NotFound if is_about_a_key(group) => {
            failure(format!("{peer} has no document for \"{argument}\""))
        }
        RejectionKind::NotFound
            if known.is_some_and(|group| !group.arguments.is_empty()) && !argument.is_empty() =>
        {
            failure(format!("{peer} has no statistics \"{group} {argument}\""))
        }
        RejectionKind::NotFound if known.is_some() => {
            failure(format!("{peer} does not offer the statistics group \"{group}\""))
        }
        RejectionKind::NotFound => usage(unknown_group(group)),
        RejectionKind::Invalid if argument.is_empty() => usage(match known {
            Some(known) if !known.arguments.is_empty() => {
                format!("the group \"{group}\" needs an argument: {group} {}", known.arguments)
            }
            _ => format!("{peer} found the group \"{group}\" invalid"),
        }),
        RejectionKind::Invalid => usage(match known {
            Some(known) => format!(
                "bad argument \"{argument}\", the usage is: {}",
                format!("{group} {}", known.arguments).trim_end()
            ),
            None => format!("bad argument \"{argument}\" of the group \"{group}\""),
        }),
        RejectionKind::NotMyVbucket => {
            failure(format!("the vbucket in \"{group} {argument}\" is not on {peer}"))
        }
        RejectionKind::UnknownCollection => {
            failure(format!("there is no collection \"{argument}\""))
        }
        RejectionKind::UnknownScope => failure(format!("there is no scope \"{argument}\"")),
        RejectionKind::AccessDenied => {
            failure(format!("access denied: this user may not read the group \"{group}\""))
        }
        RejectionKind::NoBucket => failure(format!("the group \"{group}\" is one of a bucket")),
        RejectionKind::TemporaryFailure => failure(format!(
            "{peer} cannot answer \"{group}\" now (it may be loading documents); try again later"
        )),
        other => failure(format!("statistics group \"{group}\": {other}")),
    }
}

fn is_about_a_key(group: &str) -> bool {
    matches!(group, "key" | "vkey" | "key-byid" | "vkey-byid")
}

fn unknown_group(group: &str) -> String {
    let nearest: Vec<String> =
        groups::nearest(group).iter().map(|name| format!("\"{name}\"")).collect();
    let hint = match nearest.is_empty() {
        true => "`oribi stats --list` lists those there are".to_owned(),
        false => format!("did you mean {}?", nearest.join(" or ")),
    };
    format!("there is no statistics group \"{group}\"; {hint}")
}

#[cfg(test)]
mod tests {
    //! One line for each refusal.

    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        for (refused, group, argument, text, is_usage) in [
            (
                RejectionKind::NotFound,
                "vbucket-detials",
                "",
                "there is no statistics group \"vbucket-detials\"; did you mean \"vbucket-details\"?",
                true,
            ),
            (
                RejectionKind::NotFound,
                "zzz",
                "",
                "there is no statistics group \"zzz\"; `oribi stats --list` lists those there are",
                true,
            ),
            (
                RejectionKind::NotFound,
                "audit",
                "",
                "db:1 does not offer the statistics group \"audit\"",
                false,
            ),
            (RejectionKind::NotFound, "key", "k 3", "db:1 has no document for \"k 3\"", false),
            (
                RejectionKind::Invalid,
                "vbucket-details",
                "x",
                "bad argument \"x\", the usage is: vbucket-details [VB]",
                true,
            ),
            (
                RejectionKind::Invalid,
                "key",
                "",
                "the group \"key\" needs an argument: key KEY [VB]",
                true,
            ),
            (
                RejectionKind::NotMyVbucket,
                "vbucket",
                "900",
                "the vbucket in \"vbucket 900\" is not on db:1",
                false,
            ),
            (
                RejectionKind::UnknownCollection,
                "collections",
                "a.b",
                "there is no collection \"a.b\"",
                false,
            ),
            (RejectionKind::UnknownScope, "scopes", "s", "there is no scope \"s\"", false),
            (
                RejectionKind::AccessDenied,
                "reset",
                "",
                "access denied: this user may not read the group \"reset\"",
                false,
            ),
        ] {
            let error = anyhow::Error::from(ClientError::from(refused));
            let explained = explain(error, "db:1", group, argument);
            assert_eq!(explained.to_string(), text);
            let refusal = explained.downcast_ref::<StatsRejection>().expect("a refusal");
            assert_eq!(refusal.is_usage, is_usage, "{text}");
        }
    }

    #[test]
    fn other_errors_stay_what_they_are() {
        let error = explain(anyhow::anyhow!("disk full"), "db:1", "x", "");
        assert_eq!(error.to_string(), "disk full");
    }
}
