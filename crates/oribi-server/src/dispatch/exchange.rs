//! One request and what is needed to answer it.
//!
//! Owns: how answers are encoded, so that no handler deals with headers. Invariants: an answer carries
//! the opcode and opaque of its request; error statuses pass through the legacy mapping here and
//! nowhere else; the JSON bit appears only where the client negotiated it. Encoding appends to the
//! connection's block and allocates nothing of its own.

use std::sync::Arc;

use oribi_engine::compression::inflate_into;
use oribi_engine::{FillingItem, ItemRef, KeyAhead, Refused};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Frame;
use oribi_protocol::frame_info::RequestFrames;
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{
    MutationExtras, ResponseParts, ServerDuration, write_response, write_response_head,
};
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, ManifestUid, Vbid};

use crate::buckets::BucketHandle;
use crate::connection::features::Features;
use crate::connection::fetches::Tries;
use crate::connection::parked::Answer;
use crate::connection::state::ConnectionState;
use crate::connection::write_buffer::{PinnedValue, WriteBuffer};
use crate::counters::collections::CollectionCounters;
use crate::counters::{Counter, OperationCounters};
use crate::environment::Environment;
use crate::mailbox::ConnectionId;
use crate::refusal_log::Reference;
use crate::status;

/// See the module text.
pub(crate) struct Exchange<'a> {
    /// Whose request it is.
    pub id: ConnectionId,
    /// The request.
    pub frame: &'a Frame<'a>,
    /// Its opcode.
    pub opcode: Opcode,
    /// Its framing extras.
    pub infos: RequestFrames,
    /// What the connection has agreed on.
    pub state: &'a mut ConnectionState,
    /// Where answers go.
    pub out: &'a mut WriteBuffer,
    /// The worker.
    pub env: &'a mut Environment,
    /// The key, if it was announced to the engine.
    pub ahead: Option<KeyAhead>,
    /// The item of a store request that has the value already; the frame's is empty then.
    pub received: Option<FillingItem>,
    /// What became of it before, if it is tried again.
    pub tries: Tries,
    /// It was not done, and not answered: it needs something from the store.
    pub needs_fetch: bool,
}

impl<'a> Exchange<'a> {
    /// A request as it came.
    pub fn new(
        id: ConnectionId,
        frame: &'a Frame<'a>,
        opcode: Opcode,
        state: &'a mut ConnectionState,
        out: &'a mut WriteBuffer,
        env: &'a mut Environment,
    ) -> Exchange<'a> {
        let infos = RequestFrames::default();
        let (ahead, received, tries, needs_fetch) = (None, None, Tries::default(), false);
        Exchange { id, frame, opcode, infos, state, out, env, ahead, received, tries, needs_fetch }
    }

    /// The selected bucket. Only for opcodes whose rule demands one.
    pub fn bucket(&self) -> &BucketHandle {
        self.state.bucket.as_deref().expect("the rule of this opcode demands a selected bucket")
    }

    /// Counters of this worker for the selected bucket. Only for opcodes whose rule demands one.
    pub fn counters(&self) -> &OperationCounters {
        let operations = self.state.operations.as_ref();
        operations.expect("they are selected with the bucket").counters()
    }

    /// Counts a request, once however often it is tried.
    pub fn count(&self, counter: impl FnOnce(&OperationCounters) -> &Counter) {
        if self.tries.is_first() {
            counter(self.counters()).add(1);
        }
    }

    /// Counters of this worker for a collection that the engine found.
    pub fn collection_counters(&mut self, id: CollectionId) -> &CollectionCounters {
        let ConnectionState { bucket, operations, .. } = &mut *self.state;
        let operations = operations.as_mut().expect("they are selected with the bucket");
        operations.collection(id, || {
            let bucket = bucket.as_ref().expect("the rule of this opcode demands a bucket");
            bucket.bucket().manifest()
        })
    }

    /// Collection and logical key of the request; answers Einval when the key field is not valid.
    pub fn doc_key(&mut self) -> Option<DocKey<'a>> {
        let key = self.state.doc_key(self.frame.key);
        if key.is_none() {
            self.fail_with(Status::Einval, "the key is not valid");
        }
        key
    }

    /// Vbucket of the request.
    pub fn vbid(&self, key: DocKey<'_>) -> Vbid {
        let vbuckets = self.bucket().vbuckets();
        self.state.vbid(self.frame.header.vbucket_or_status, key, vbuckets)
    }

    /// Parts of an answer with this status and nothing else.
    pub fn parts(&self, status: Status) -> ResponseParts<'static> {
        let header = &self.frame.header;
        let duration = self.duration();
        ResponseParts { duration, ..ResponseParts::new(header.opcode, status, header.opaque) }
    }

    /// How long the request took so far, where the client negotiated to be told.
    pub fn duration(&self) -> Option<ServerDuration> {
        let begun_ns = self.tries.begun_ns;
        (begun_ns != 0).then(|| {
            ServerDuration::of_ns(self.env.latency_clock.now_ns().saturating_sub(begun_ns))
        })
    }

    /// Answers with a status and nothing else.
    pub fn fail(&mut self, status: Status) {
        let status = self.state.wire_status(status);
        let parts = self.parts(status);
        write_response(self.out.tail(), &parts);
    }

    /// Answers with a status and, where the client negotiated it, a text for people about what was wrong and
    /// a reference that finds the request in the log. The text is the server's own and plain ASCII.
    #[cold]
    pub fn fail_because(&mut self, status: Status, context: &str) {
        let reference = self.log_refusal(status, context);
        let status = self.state.wire_status(status);
        if !self.state.features.has(Feature::XError) || self.json_bit() == 0 {
            return self.fail(status);
        }
        let body = error_body(None, Some(context), reference);
        let parts = ResponseParts { datatype: self.json_bit(), value: &body, ..self.parts(status) };
        write_response(self.out.tail(), &parts);
    }

    /// Answers a request that failed when it was tried with a status and, where the client negotiated it, a text for
    /// people about why. It is not logged: whose document it is knows best what to make of it. The text is the
    /// server's own, plain ASCII without quotes; nothing is allocated for it.
    #[cold]
    pub fn fail_with(&mut self, status: Status, context: &'static str) {
        let parts = self.parts(self.state.wire_status(status));
        write_context(self.out, self.state.features, &parts, context);
    }

    /// Logs a refused request, unless there were many just before; the reference in the log.
    fn log_refusal(&mut self, status: Status, context: &str) -> Option<Reference> {
        let reference = self.env.refusals.admit(self.env.now_ms)?;
        let user = self.state.identity.as_ref().map_or("", |identity| &identity.name);
        tracing::info!(
            %reference,
            connection = self.state.record.number,
            user,
            opcode = self.opcode.name(),
            status = status.name(),
            context,
            "request refused"
        );
        Some(reference)
    }

    /// Answers Success and nothing else.
    pub fn succeed(&mut self) {
        let parts = self.parts(Status::Success);
        write_response(self.out.tail(), &parts);
    }

    /// Appends a complete answer.
    pub fn send(&mut self, parts: &ResponseParts<'_>) {
        write_response(self.out.tail(), parts);
    }

    /// Answers Success with a short text or a few bytes.
    pub fn send_value(&mut self, value: &[u8]) {
        let parts = ResponseParts { value, ..self.parts(Status::Success) };
        write_response(self.out.tail(), &parts);
    }

    /// Answers with a JSON document of the server, which is pinned when it is large.
    pub fn send_document(&mut self, status: Status, json: &Arc<str>) {
        let parts = ResponseParts { datatype: self.json_bit(), ..self.parts(status) };
        write_response_head(self.out.tail(), &parts, json.len());
        if json.len() >= GATHER_VALUE_BYTES_MIN {
            self.out.pin(PinnedValue::Document(Arc::clone(json)));
        } else {
            self.out.tail().extend_from_slice(json.as_bytes());
        }
    }

    /// Answers that the engine did not look at the key, with what the client needs to do better. What
    /// needs a fetch is not answered but waits for it, unless that was to no avail before.
    pub fn refuse(&mut self, refused: Refused) {
        match refused {
            Refused::NotMyVbucket => self.not_my_vbucket(),
            Refused::UnknownCollection => self.unknown(Status::UnknownCollection),
            Refused::NeedsFetch if !self.tries.is_over() => self.needs_fetch = true,
            Refused::Locked => {
                self.counters().lock_errors.add(1);
                let is_old = !self.state.features.has(Feature::XError);
                let is_temporary = is_old && status::locked_is_temporary(self.opcode);
                self.fail(if is_temporary { Status::Etmpfail } else { Status::Locked });
            }
            Refused::NoMemory => {
                self.counters().ep_oom_errors.add(1);
                self.fail_with(status::of_refused(refused), "the bucket's memory is full");
            }
            Refused::TemporaryFailure => {
                self.counters().ep_tmp_oom_errors.add(1);
                let context = "the bucket's memory or queue is full for now, or its store fails";
                self.fail_with(status::of_refused(refused), context);
            }
            Refused::NeedsFetch => {
                self.counters().ep_tmp_oom_errors.add(1);
                let context = "the document could not be read from the store";
                self.fail_with(status::of_refused(refused), context);
            }
        }
    }

    /// Answers that a collection or scope is not in the manifest, and which manifest that is.
    pub fn unknown(&mut self, status: Status) {
        let uid = self.bucket().bucket().manifest().uid();
        let datatype = self.json_bit();
        let body = error_body(Some(uid), None, None);
        let status = self.state.wire_status(status);
        let parts = ResponseParts { datatype, value: &body, ..self.parts(status) };
        write_response(self.out.tail(), &parts);
    }

    /// Answers with the cluster configuration, unless this connection has seen it already and asked
    /// not to be told twice.
    fn not_my_vbucket(&mut self) {
        let document = self.env.server.bucket_document(self.bucket());
        let seen = self.state.config_sent == document.version
            && self.state.features.has(Feature::DedupeNotMyVbucketClustermap);
        if seen {
            self.fail(Status::NotMyVbucket);
            return;
        }
        self.state.config_sent = document.version;
        self.send_document(Status::NotMyVbucket, &document.json);
    }

    fn json_bit(&self) -> u8 {
        self.state.features.datatype_shown(Datatype::JSON)
    }
}

/// Appends an answer to what failed, with a text about why where the client reads it. `parts` is the answer
/// without.
#[cold]
pub(crate) fn write_context(
    out: &mut WriteBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    context: &'static str,
) {
    const BEGIN: &[u8] = br#"{"error":{"context":""#;
    const END: &[u8] = br#""}}"#;
    debug_assert!(context.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"'));
    let datatype = features.datatype_shown(Datatype::JSON);
    if !features.has(Feature::XError) || datatype == 0 {
        return write_response(out.tail(), parts);
    }
    let parts = ResponseParts { datatype, ..*parts };
    write_response_head(out.tail(), &parts, BEGIN.len() + context.len() + END.len());
    for piece in [BEGIN, context.as_bytes(), END] {
        out.tail().extend_from_slice(piece);
    }
}

/// The body of an error: JSON with the version of the manifest, a text for people, and where it was logged.
#[cold]
fn error_body(
    manifest: Option<ManifestUid>,
    context: Option<&str>,
    reference: Option<Reference>,
) -> Vec<u8> {
    let mut error = serde_json::Map::new();
    if let Some(context) = context {
        error.insert("context".to_owned(), context.into());
    }
    if let Some(reference) = reference {
        error.insert("ref".to_owned(), reference.to_string().into());
    }
    let mut body = serde_json::Map::new();
    if !error.is_empty() {
        body.insert("error".to_owned(), error.into());
    }
    if let Some(uid) = manifest {
        body.insert("manifest_uid".to_owned(), uid.to_string().into());
    }
    serde_json::to_vec(&body).expect("a map of strings always serialises")
}

/// Appends a document with its own CAS, see [`write_item_as`].
pub(crate) fn write_item(
    out: &mut WriteBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    item: &ItemRef,
) {
    write_item_as(out, features, parts, item, item.cas());
}

/// Appends a document: flags as extras, optionally the key field, and the value, copied when it is
/// small and pinned when it is large.
pub(crate) fn write_item_as(
    out: &mut WriteBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    item: &ItemRef,
    cas: Cas,
) {
    let flags = item.flags().to_be_bytes();
    let datatype = features.datatype_shown(item.datatype());
    let parts = ResponseParts { cas: cas.0, datatype, extras: &flags, ..*parts };
    if item.is_compressed() && !features.has(Feature::Snappy) {
        return write_inflated(out, &parts, item);
    }
    let value = item.body();
    write_response_head(out.tail(), &parts, value.len());
    if value.len() >= GATHER_VALUE_BYTES_MIN {
        out.pin(PinnedValue::Item(item.clone()));
    } else {
        out.tail().extend_from_slice(value);
    }
}

/// Appends a document whose body is compressed, for a client that does not read that.
#[cold]
fn write_inflated(out: &mut WriteBuffer, parts: &ResponseParts<'_>, item: &ItemRef) {
    let mut body = Vec::new();
    let bytes = item.plain_body_bytes();
    if bytes.is_ok_and(|bytes| bytes < GATHER_VALUE_BYTES_MIN) {
        // It goes behind its head, where any other would have been copied to.
        let begin = out.tail().len();
        write_response_head(out.tail(), parts, bytes.unwrap_or(0));
        if inflate_into(item.body(), GATHER_VALUE_BYTES_MIN, out.tail()).is_ok() {
            return;
        }
        out.tail().truncate(begin);
    } else if item.plain_body(&mut body).is_ok() {
        write_response_head(out.tail(), parts, body.len());
        return out.pin(PinnedValue::Inflated(Arc::new(body)));
    }
    // What is stored was checked when it was; it is damaged, like a document that cannot be read from disk.
    let failed =
        ResponseParts { datatype: 0, cas: 0, extras: &[], status: Status::Etmpfail, ..*parts };
    write_response(out.tail(), &failed);
}

/// Appends the answer to a successful write. `parts` is an answer with nothing in it.
pub(crate) fn write_answer(
    out: &mut WriteBuffer,
    features: Features,
    mut parts: ResponseParts<'_>,
    answer: &Answer,
) {
    let digits: [u8; 8];
    let (mutation, value) = match answer {
        Answer::Document(item) => return write_item(out, features, &parts, item),
        Answer::Touched(mutation) => {
            let parts = ResponseParts { cas: mutation.cas.0, ..parts };
            return write_response(out.tail(), &parts);
        }
        Answer::Mutation(mutation) => (mutation, &[][..]),
        Answer::Counter { mutation, value } => {
            digits = value.to_be_bytes();
            (mutation, &digits[..])
        }
        Answer::SubDocument { mutation, status, value } => {
            parts.status = *status;
            (mutation, &value[..])
        }
    };
    let token = MutationExtras { vb_uuid: mutation.vb_uuid, seqno: mutation.seqno }.encode();
    let extras: &[u8] = if features.has(Feature::MutationSeqno) { &token } else { &[] };
    let parts = ResponseParts { cas: mutation.cas.0, extras, value, ..parts };
    write_response(out.tail(), &parts);
}
