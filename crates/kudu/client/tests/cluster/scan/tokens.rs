//! Scan tokens cover a scan exactly once, here and after a journey as bytes.

use oribi_kudu::{Error, Layout, Predicate, ReadMode, ScanError, ScanToken, TokenOptions};

use super::{all_rows, connect, loadgen, numbers_table, sorted};

// Compat (Apache Kudu): scans: predicates, bounds, read modes,
// tokens, columnar layout
#[tokio::test]
async fn the_tokens_of_a_scan_have_its_rows_once() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "tokens").await;
    loadgen(cluster, "tokens", 20_000);
    let scan = table
        .scan()
        .columns(["string_val", "key"])
        .filter(Predicate::less("key", 15_000))
        .lower_bound([100])
        .upper_bound([12_000])
        // Another client wrote them, so this client's own writes say nothing about what is present.
        .read_mode(ReadMode::Latest);
    let expected = sorted(all_rows(scan.clone().build().unwrap()).await);
    assert_eq!(expected.len(), 11_900);
    for options in [TokenOptions::new(), TokenOptions::new().split_bytes(50_000)] {
        let tokens = scan.clone().into_tokens(options).await.unwrap();
        assert!(tokens.len() >= 4, "{} tokens for four tablets", tokens.len());
        let mut rows = Vec::new();
        for token in tokens {
            assert!(token.tablet_id().is_some_and(|id| id.len() == 32));
            assert_eq!(
                token.leader().map(ToString::to_string),
                Some(cluster.address(oribi_testkit::KuduServer::TabletServer(0)))
            );
            let copy = ScanToken::deserialize(&token.serialize()).unwrap().layout(Layout::Columnar);
            rows.extend(all_rows(copy.into_scanner(&client).await.unwrap()).await);
        }
        assert_eq!(sorted(rows), expected, "{options:?}");
    }
}

#[tokio::test]
async fn tablets_that_predicates_exclude_get_no_token() {
    let Some((_, client)) = connect().await else { return };
    let table = numbers_table(&client, "pruned").await;
    let tokens = |predicate| table.scan().filter(predicate).into_tokens(TokenOptions::default());
    assert_eq!(tokens(Predicate::is_not_null("key")).await.unwrap().len(), 4);
    assert_eq!(tokens(Predicate::equal("key", 77)).await.unwrap().len(), 1);
    assert_eq!(tokens(Predicate::is_null("key")).await.unwrap().len(), 0);
}

#[tokio::test]
async fn bytes_that_are_no_token_are_refused() {
    let Some((_, client)) = connect().await else { return };
    let table = numbers_table(&client, "no_token").await;
    assert!(matches!(
        ScanToken::deserialize(&[0xff; 7]),
        Err(Error::Scan(ScanError::Token { .. }))
    ));
    let nameless = ScanToken::deserialize(&[]).unwrap();
    assert!(matches!(
        nameless.clone().into_scanner(&client).await,
        Err(Error::Scan(ScanError::Token { .. }))
    ));
    assert!(matches!(nameless.into_scanner_of(&table), Err(Error::Scan(ScanError::Token { .. }))));
    let other = numbers_table(&client, "other_table").await;
    let token = other.scan().into_tokens(TokenOptions::default()).await.unwrap().remove(0);
    assert!(matches!(token.into_scanner_of(&table), Err(Error::Scan(ScanError::Token { .. }))));
}
