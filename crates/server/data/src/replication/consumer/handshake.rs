//! The requests before the first stream: features, login, bucket, open, control settings.
//!
//! Owns: their order. Each step waits for the answer of the one before, but the control settings,
//! which go out together. Invariant: the other node has proved that it knows the cluster's secret
//! before anything else is said to it.

use std::sync::Arc;

use oribi_auth::{NodeLogin, NodeProof};
use oribi_cluster::buckets::SharedBucket;
use oribi_protocol::dcp::control;
use oribi_protocol::dcp::open::{OpenExtras, OpenFlags};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_protocol::status::Status;

use crate::replication::failure::{LinkFailure, StatusName};
use crate::replication::work::LinkWork;

/// Seconds between two noops of the other node.
pub(crate) const NOOP_INTERVAL_S: u64 = 5;

const AGENT: &[u8] = b"oribi-replication";
const OPAQUE: u32 = 0x10;

const FEATURES: [(Feature, &str); 6] = [
    (Feature::Xattr, "extended attributes"),
    (Feature::XError, "extended errors"),
    (Feature::SelectBucket, "bucket selection"),
    (Feature::Snappy, "compression"),
    (Feature::Json, "JSON datatypes"),
    (Feature::Collections, "collections"),
];

/// The names of both nodes, what is copied, and the secret that they share.
#[derive(Clone)]
pub(crate) struct LinkIdentity {
    /// Name of this node.
    pub(crate) own: String,
    /// Name of the other node.
    pub(crate) source: String,
    pub(crate) bucket: Arc<dyn SharedBucket>,
    pub(crate) secret: Arc<[u8]>,
}

/// The answer that is awaited.
enum Step {
    Hello,
    Challenge,
    /// The proof is being computed.
    Proving,
    Proved(NodeProof),
    Bucket,
    Open,
    /// So many control settings are unanswered.
    Controls(usize),
}

/// What follows an answer.
pub(super) enum HandshakeProgress {
    Waiting,
    Work(LinkWork),
    /// Streams may be asked for.
    Open,
}

/// See the module text.
pub(super) struct Handshake {
    identity: LinkIdentity,
    window_bytes: u32,
    login: Option<NodeLogin>,
    step: Step,
}

impl Handshake {
    /// Sends the first request.
    pub(super) fn begin(identity: LinkIdentity, window_bytes: u32, out: &mut Vec<u8>) -> Handshake {
        let features: Vec<u8> =
            FEATURES.iter().flat_map(|(feature, _)| feature.code().to_be_bytes()).collect();
        send(out, &RequestParts { key: AGENT, value: &features, ..request(Opcode::Hello) });
        Handshake { identity, window_bytes, login: Some(NodeLogin::begin()), step: Step::Hello }
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub(super) fn take(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, LinkFailure> {
        if frame.header.opaque != OPAQUE {
            return Err(LinkFailure::Protocol("an answer to no request"));
        }
        let status = Status::from_u16(frame.header.vbucket_or_status);
        let refused = |request| {
            let status = StatusName(frame.header.vbucket_or_status);
            Err(LinkFailure::Refused { request, status })
        };
        let is_success = status == Some(Status::Success);
        match &mut self.step {
            Step::Hello if is_success => {
                check_features(frame.value)?;
                let login = self.login.as_ref().expect("a login begins once");
                let first = login.client_first();
                let parts = RequestParts {
                    key: NodeLogin::mechanism().as_bytes(),
                    value: first.as_bytes(),
                    ..request(Opcode::SaslAuth)
                };
                send(out, &parts);
                self.step = Step::Challenge;
            }
            Step::Hello => return refused("HELLO"),
            Step::Challenge if status == Some(Status::AuthContinue) => {
                let Some(login) = self.login.take() else {
                    return Err(LinkFailure::Protocol("a second challenge"));
                };
                let (secret, challenge) = (Arc::clone(&self.identity.secret), frame.value.to_vec());
                self.step = Step::Proving;
                return Ok(HandshakeProgress::Work(LinkWork::LogIn { login, secret, challenge }));
            }
            Step::Proved(proof) if is_success => {
                if !proof.is_answered_by(frame.value) {
                    return Err(LinkFailure::Impostor);
                }
                let name = self.identity.bucket.name().as_bytes();
                send(out, &RequestParts { key: name, ..request(Opcode::SelectBucket) });
                self.step = Step::Bucket;
            }
            // A node answers a name that it does not know like a wrong secret.
            Step::Challenge | Step::Proved(_) => return Err(LinkFailure::Secret),
            Step::Proving => return Err(LinkFailure::Protocol("an answer to no request")),
            Step::Bucket if is_success => {
                self.open(out);
                self.step = Step::Open;
            }
            Step::Bucket => return refused("SELECT_BUCKET"),
            Step::Open if is_success => self.step = Step::Controls(self.send_controls(out)),
            Step::Open => return refused("DCP_OPEN"),
            Step::Controls(left) if is_success => {
                *left -= 1;
                if *left == 0 {
                    return Ok(HandshakeProgress::Open);
                }
            }
            Step::Controls(_) => return refused("DCP_CONTROL"),
        }
        Ok(HandshakeProgress::Waiting)
    }

    /// Sends the proof that was computed.
    pub(super) fn prove(&mut self, proof: NodeProof, out: &mut Vec<u8>) -> Result<(), LinkFailure> {
        if !matches!(self.step, Step::Proving) {
            return Ok(());
        }
        let parts = RequestParts {
            key: NodeLogin::mechanism().as_bytes(),
            value: proof.client_final().as_bytes(),
            ..request(Opcode::SaslStep)
        };
        send(out, &parts);
        self.step = Step::Proved(proof);
        Ok(())
    }

    fn open(&self, out: &mut Vec<u8>) {
        let LinkIdentity { own, source, bucket, .. } = &self.identity;
        let mut name = format!("replication:{source}->{own}:{}", bucket.name());
        let uuid = &bucket.bucket().config().uuid;
        // Names of nodes are unique, but may be long.
        let mut end = name.len().min(200);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        let settings = serde_json::json!({ "consumer_name": own, "bucket_uuid": uuid }).to_string();
        let flags = OpenFlags(
            OpenFlags::PRODUCER.0
                | OpenFlags::INCLUDE_XATTRS.0
                | OpenFlags::INCLUDE_DELETE_TIMES.0
                | OpenFlags::INCLUDE_DELETED_USER_XATTRS.0,
        );
        let parts = RequestParts {
            extras: &OpenExtras { flags }.encode(),
            key: name.as_bytes(),
            value: settings.as_bytes(),
            ..request(Opcode::DcpOpen)
        };
        send(out, &parts);
    }

    fn send_controls(&self, out: &mut Vec<u8>) -> usize {
        let (interval, window) = (NOOP_INTERVAL_S.to_string(), self.window_bytes.to_string());
        let controls: [(&[u8], &str); 6] = [
            (control::ENABLE_NOOP, "true"),
            (control::SET_NOOP_INTERVAL, &interval),
            (control::CONNECTION_BUFFER_SIZE, &window),
            (control::ENABLE_EXPIRY_OPCODE, "true"),
            (control::INCLUDE_DELETED_USER_XATTRS, "true"),
            (control::MAX_MARKER_VERSION, "2.2"),
        ];
        for (name, value) in controls {
            let value = value.as_bytes();
            send(out, &RequestParts { key: name, value, ..request(Opcode::DcpControl) });
        }
        controls.len()
    }
}

fn check_features(granted: &[u8]) -> Result<(), LinkFailure> {
    let (codes, _) = granted.as_chunks::<2>();
    let has = |feature: Feature| codes.iter().any(|code| *code == feature.code().to_be_bytes());
    match FEATURES.iter().find(|(feature, _)| !has(*feature)) {
        Some((_, name)) => Err(LinkFailure::Feature(name)),
        None => Ok(()),
    }
}

fn request(opcode: Opcode) -> RequestParts<'static> {
    RequestParts { opaque: OPAQUE, ..RequestParts::new(opcode) }
}

fn send(out: &mut Vec<u8>, parts: &RequestParts<'_>) {
    encode_request(out, parts);
}
