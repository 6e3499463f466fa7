//! The handler of each opcode.
//!
//! Invariant: an opcode has a handler exactly when it has a rule ([`super::rules`]). The compiler
//! checks it. The dispatcher calls a handler once the rule is satisfied.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;

use super::outcome::{HandlerReply, Outcome};
use super::request::Request;
use super::{
    collections, counter, dcp, handshake, key_listing, locks, observing, range_scan, reads, rules,
    sampling, stats, sub_document, with_meta, writes,
};

type Handler = for<'a> fn(&mut Request<'a>) -> Outcome<'a>;

/// The handlers by opcode, computed at compile time.
static HANDLERS: [Option<Handler>; 256] = {
    let mut handlers = [None; 256];
    let mut code = 0;
    while code < handlers.len() {
        if let Some(opcode) = Opcode::from_u8(code as u8) {
            handlers[code] = handler(opcode);
            assert!(
                handlers[code].is_some() == rules::find(opcode).is_some(),
                "an opcode has a rule but no handler, or a handler but no rule"
            );
        }
        code += 1;
    }
    handlers
};

/// Runs the handler of a request whose rule is satisfied.
#[inline(never)]
pub(super) fn call<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    match HANDLERS[usize::from(req.opcode as u8)] {
        Some(handler) => handler(req),
        None => Err(Status::NotSupported.into()),
    }
}

fn succeed<'a>(_: &mut Request<'a>) -> Outcome<'a> {
    Ok(HandlerReply::Success)
}

const fn handler(opcode: Opcode) -> Option<Handler> {
    use Opcode::*;
    let handler: Handler = match opcode {
        Get | Getq => reads::get,
        Set | Setq => writes::set,
        Getk | Getkq => reads::get_with_key,
        GetReplica => reads::get_replica,
        Gat | Gatq => reads::get_and_touch,
        GetLocked => locks::get_locked,
        UnlockKey => locks::unlock,
        GetMeta | GetqMeta => reads::get_meta,
        ObserveSeqno => reads::observe_seqno,
        GetAllVbSeqnos => reads::get_all_vb_seqnos,
        GetFailoverLog => observing::failover_log,
        Observe => observing::observe,
        GetRandomKey => sampling::get_random_key,
        GetKeys => key_listing::get_keys,
        EvictKey => sampling::evict_key,
        SetWithMeta | SetqWithMeta | AddWithMeta | AddqWithMeta | DelWithMeta | DelqWithMeta => {
            with_meta::store
        }
        Add | Addq => writes::add,
        Replace | Replaceq => writes::replace,
        Append | Appendq => writes::append,
        Prepend | Prependq => writes::prepend,
        Delete | Deleteq => writes::delete,
        Touch => writes::touch,
        Flush | Flushq => writes::flush,
        Increment | Incrementq => counter::increment,
        Decrement | Decrementq => counter::decrement,
        SubdocGet | SubdocExists | SubdocGetCount => sub_document::look_up_one,
        SubdocMultiLookup => sub_document::look_up_several,
        SubdocDictAdd
        | SubdocDictUpsert
        | SubdocDelete
        | SubdocReplace
        | SubdocArrayPushLast
        | SubdocArrayPushFirst
        | SubdocArrayInsert
        | SubdocArrayAddUnique
        | SubdocCounter
        | SubdocReplaceBodyWithXattr => sub_document::mutate_one,
        SubdocMultiMutation => sub_document::mutate_several,
        Hello => handshake::hello,
        GetErrorMap => handshake::get_error_map,
        SaslListMechs => handshake::sasl_list_mechs,
        SaslAuth => handshake::sasl_auth,
        SaslStep => handshake::sasl_step,
        SelectBucket => handshake::select_bucket,
        ListBuckets => handshake::list_buckets,
        GetClusterConfig => handshake::get_cluster_config,
        Noop | Verbosity => succeed,
        Version => handshake::version,
        Quit | Quitq => handshake::quit,
        CollectionsGetManifest => collections::get_manifest,
        CollectionsGetId => collections::get_collection_id,
        CollectionsGetScopeId => collections::get_scope_id,
        Stat => stats::stat,
        RangeScanCreate => range_scan::create,
        RangeScanContinue => range_scan::proceed,
        RangeScanCancel => range_scan::cancel,
        DcpOpen => dcp::open,
        DcpControl => dcp::control,
        DcpStreamReq => dcp::request_stream,
        DcpCloseStream => dcp::close_stream,
        DcpGetFailoverLog => dcp::failover_log,
        DcpBufferAcknowledgement => dcp::acknowledge,
        DcpSeqnoAcknowledged => dcp::acknowledge_seqno,
        _ => return None,
    };
    Some(handler)
}
