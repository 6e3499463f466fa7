//! How the checks' clients log in.

use oribi_auth::{DEVELOPMENT_NAME, DEVELOPMENT_PASSWORD};
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};

use super::ConnectionHarness;

/// Logs in with the features that `wants` accepts, and selects the bucket.
pub(crate) fn log_in(harness: &mut ConnectionHarness, wants: impl Fn(Feature) -> bool) {
    let wanted = Feature::all().iter().filter(|feature| wants(**feature));
    let features: Vec<u8> = wanted.flat_map(|feature| feature.code().to_be_bytes()).collect();
    let credentials = format!("\0{DEVELOPMENT_NAME}\0{DEVELOPMENT_PASSWORD}");
    let requests = [
        RequestParts { key: b"check", value: &features, ..RequestParts::new(Opcode::Hello) },
        RequestParts {
            key: b"PLAIN",
            value: credentials.as_bytes(),
            ..RequestParts::new(Opcode::SaslAuth)
        },
        RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) },
    ];
    for request in &requests {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, request);
        let output = harness.feed(&bytes);
        assert_eq!(output.get(6..8), Some(&[0, 0][..]), "log-in: {output:?}");
    }
}
