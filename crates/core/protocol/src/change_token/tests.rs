//! Tokens there and back, and what is none.

use proptest::prelude::*;

use super::*;

#[test]
fn a_position_names_its_snapshot_only_within_it() {
    let whole = Position::at(Vbid(5), VbUuid(0x3fa2_b1c0_d4e5), Seqno(1042));
    assert_eq!(whole.to_string(), "5:3fa2b1c0d4e5:1042");
    assert!(whole.is_at_snapshot_end());
    let within = Position { snapshot: (Seqno(1000), Seqno(1050)), ..whole };
    assert_eq!(within.to_string(), "5:3fa2b1c0d4e5:1042:1000:1050");
    assert!(!within.is_at_snapshot_end());
    assert_eq!(Position::beginning(Vbid(0)).to_string(), "0:0:0");
}

#[test]
fn a_token_says_what_holds_for_the_rest() {
    let token: ChangeToken = "manifest=1f,rest=now,7:a:3,2:b:9:8:10".parse().expect("a token");
    assert_eq!((token.manifest_uid, token.rest), (ManifestUid(0x1f), Rest::Now));
    assert_eq!(token.position(Vbid(7)), Some(&Position::at(Vbid(7), VbUuid(10), Seqno(3))));
    assert_eq!(token.position(Vbid(3)), None);
    assert_eq!(token.to_string(), "manifest=1f,rest=now,2:b:9:8:10,7:a:3");
    assert_eq!("".parse(), Ok(ChangeToken::new(Rest::Beginning)));
    assert_eq!(ChangeToken::new(Rest::Now).to_string(), "rest=now");
}

/// Tokens of lines may be joined as they come.
#[test]
fn the_last_position_of_a_vbucket_counts() {
    let token: ChangeToken = "1:a:3,2:a:1,1:a:8\n".parse().expect("a token");
    assert_eq!(token.to_string(), "1:a:8,2:a:1");
}

#[test]
fn refuses_what_is_no_token() {
    for text in [
        "x",
        ",",
        "1:a",
        "1:a:3:4",
        "1:a:3:2:4:5",
        "1:a:5:6:7",
        "1:a:5:2:4",
        "1024:a:5",
        "99999:a:5",
        "1:g:5",
        "1:a:-5",
        "+1:a:5",
        "1:+a:5",
        "1:a:18446744073709551616",
        "1::5",
        "rest=later",
        "manifest=",
        "manifest=x",
        "now",
        "1:a:5,,2:a:5",
    ] {
        let error = text.parse::<ChangeToken>().expect_err(text);
        assert!(error.to_string().contains("change token"), "{error}");
    }
    let long = "1".repeat(100_000).parse::<ChangeToken>().expect_err("no position");
    assert!(long.to_string().len() < 200);
}

fn positions() -> impl Strategy<Value = Position> {
    let seqnos = proptest::array::uniform3(any::<u64>());
    (0..VBUCKETS_MAX, any::<u64>(), seqnos, any::<bool>()).prop_map(
        |(vbid, uuid, seqnos, whole)| {
            let mut seqnos = seqnos.map(Seqno);
            seqnos.sort();
            let [start, seqno, end] = seqnos;
            let position = Position::at(Vbid(vbid), VbUuid(uuid), seqno);
            if whole { position } else { Position { snapshot: (start, end), ..position } }
        },
    )
}

proptest! {
    #[test]
    fn comes_back_as_it_was(
        manifest in any::<u64>(),
        is_now in any::<bool>(),
        positions in proptest::collection::vec(positions(), 0..40),
    ) {
        let mut token = ChangeToken::new(if is_now { Rest::Now } else { Rest::Beginning });
        token.manifest_uid = ManifestUid(manifest);
        let mut last = std::collections::BTreeMap::new();
        for position in positions {
            prop_assert_eq!(position.to_string().parse(), Ok(position));
            token.set(position);
            last.insert(position.vbid, position);
        }
        let expected: Vec<Position> = last.into_values().collect();
        prop_assert_eq!(token.positions(), expected);
        prop_assert_eq!(token.to_string().parse(), Ok(token));
    }

    #[test]
    fn any_text_is_a_token_or_refused(text in "[0-9a-f:,=anowrestmif]{0,60}") {
        if let Ok(token) = text.parse::<ChangeToken>() {
            prop_assert_eq!(token.to_string().parse(), Ok(token));
        }
    }
}
