//! The messenger against a scripted server on a real socket: the server's faults, their timing, and
//! the outcome of the calls.

use std::time::Duration;

use futures_util::future::join_all;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;
use crate::proto::rpc::{
    ErrorStatusPb, NegotiatePb, NegotiateStepPb, RequestHeaderPb, RequestIdPb, ResponseHeaderPb,
    RpcErrorCodePb, SaslMechanismPb,
};
use crate::proto::tserver::{PingRequestPb, PingResponsePb, WriteResponsePb};
use crate::rpc::NegotiationError;
use crate::rpc::frame::{CONNECTION_CONTEXT_CALL_ID, CONNECTION_HEADER, NEGOTIATION_CALL_ID};

const PING: Method = Method { service: "kudu.tserver.TabletServerService", name: "Ping" };
const WRITE: Method = Method { service: "kudu.tserver.TabletServerService", name: "Write" };

/// The server's side of one connection.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// Accepts a connection and negotiates like a server without TLS.
    async fn accept(listener: &TcpListener) -> Self {
        let mut peer = Self::accept_raw(listener).await;
        assert_eq!(peer.read_frame().await.0.call_id, NEGOTIATION_CALL_ID);
        let plain = SaslMechanismPb { mechanism: "PLAIN".to_owned() };
        peer.negotiate(&NegotiatePb {
            step: Some(NegotiateStepPb::Negotiate as i32),
            sasl_mechanisms: vec![plain],
            ..NegotiatePb::default()
        })
        .await;
        assert_eq!(peer.read_frame().await.0.call_id, NEGOTIATION_CALL_ID);
        let step = Some(NegotiateStepPb::SaslSuccess as i32);
        peer.negotiate(&NegotiatePb { step, ..NegotiatePb::default() }).await;
        assert_eq!(peer.read_frame().await.0.call_id, CONNECTION_CONTEXT_CALL_ID);
        peer
    }

    /// Accepts a connection and reads only the bytes before the first frame.
    async fn accept_raw(listener: &TcpListener) -> Self {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut header = [0; CONNECTION_HEADER.len()];
        stream.read_exact(&mut header).await.expect("a header");
        assert_eq!(header, CONNECTION_HEADER);
        Self { stream }
    }

    async fn negotiate(&mut self, message: &NegotiatePb) {
        self.reply(NEGOTIATION_CALL_ID, &message.encode_to_vec()).await;
    }

    async fn read_frame(&mut self) -> (RequestHeaderPb, Bytes) {
        let bytes = self.stream.read_u32().await.expect("a length");
        let mut frame = vec![0; bytes as usize];
        self.stream.read_exact(&mut frame).await.expect("a frame");
        let mut frame = Bytes::from(frame);
        let header = RequestHeaderPb::decode_length_delimited(&mut frame).expect("a header");
        assert_eq!(prost::decode_length_delimiter(&mut frame).expect("a length"), frame.len());
        (header, frame)
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    async fn reply(&mut self, call_id: i32, body: &[u8]) {
        let header = ResponseHeaderPb { call_id: Some(call_id), ..ResponseHeaderPb::default() };
        self.send(&frame(&header, body)).await;
    }

    async fn refuse(&mut self, call_id: i32, code: RpcErrorCodePb) {
        let header = ResponseHeaderPb {
            call_id: Some(call_id),
            is_error: Some(true),
            sidecar_offsets: vec![],
        };
        let status = ErrorStatusPb {
            message: "no".to_owned(),
            code: Some(code as i32),
            unsupported_feature_flags: vec![],
        };
        self.send(&frame(&header, &status.encode_to_vec())).await;
    }
}

fn frame(header: &ResponseHeaderPb, body: &[u8]) -> Vec<u8> {
    let mut rest = header.encode_length_delimited_to_vec();
    prost::encoding::encode_varint(body.len() as u64, &mut rest);
    rest.extend_from_slice(body);
    [&(rest.len() as u32).to_be_bytes()[..], &rest].concat()
}

async fn listen() -> (TcpListener, HostPort) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    (listener, HostPort::new("127.0.0.1", port))
}

fn options() -> MessengerOptions {
    MessengerOptions::new("oribi")
}

fn within(time: Duration) -> CallOptions {
    CallOptions::new(Instant::now() + time)
}

fn soon() -> CallOptions {
    within(Duration::from_secs(20))
}

async fn ping(messenger: &Messenger, server: &HostPort) -> Result<(), RpcError> {
    messenger.call::<_, PingResponsePb>(server, &PING, &PingRequestPb {}, &soon()).await.map(|_| ())
}

#[tokio::test]
async fn replies_find_their_calls_in_any_order() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let mut calls = Vec::new();
        for _ in 0..20 {
            calls.push(peer.read_frame().await);
        }
        for (header, body) in calls.iter().rev() {
            peer.reply(header.call_id, body).await;
        }
    };
    let calls = (0..20u64).map(|timestamp| {
        let request = WriteResponsePb { timestamp: Some(timestamp), ..WriteResponsePb::default() };
        let (messenger, server) = (&messenger, &server);
        async move { messenger.call::<_, WriteResponsePb>(server, &WRITE, &request, &soon()).await }
    });
    let (replies, ()) = tokio::join!(join_all(calls), serve);
    for (timestamp, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply.expect("a reply").message.timestamp, Some(timestamp as u64));
    }
}

#[tokio::test]
async fn a_header_says_what_the_call_says() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let request_id = RequestIdPb {
        client_id: "client".to_owned(),
        seq_no: 7,
        first_incomplete_seq_no: 5,
        attempt_no: 1,
    };
    let call_options = CallOptions {
        required_feature_flags: &[3, 11],
        request_id: Some(request_id.clone()),
        ..within(Duration::from_secs(9))
    };
    let pieces = vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")];
    let call = messenger.call_pieces::<PingResponsePb>(&server, &WRITE, pieces, &call_options);
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, body) = peer.read_frame().await;
        peer.reply(header.call_id, b"").await;
        (header, body)
    };
    let (reply, (header, body)) = tokio::join!(call, serve);
    reply.expect("a reply");
    assert_eq!(body, "onetwo".as_bytes());
    let method = header.remote_method.expect("a method");
    assert_eq!(
        (method.service_name.as_str(), method.method_name.as_str()),
        (WRITE.service, "Write")
    );
    let timeout_ms = header.timeout_millis.expect("a timeout");
    assert!((1..=9000).contains(&timeout_ms), "{timeout_ms}");
    assert_eq!(header.required_feature_flags, [3, 11]);
    assert_eq!(header.request_id, Some(request_id));
}

#[tokio::test]
async fn sidecars_arrive_beside_the_message() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let request = PingRequestPb {};
    let call_options = soon();
    let call = messenger.call::<_, PingResponsePb>(&server, &PING, &request, &call_options);
    let large = vec![7; 3_000_000];
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        let header = ResponseHeaderPb {
            call_id: Some(header.call_id),
            is_error: Some(false),
            sidecar_offsets: vec![0, 5],
        };
        peer.send(&frame(&header, &[b"small", &large[..]].concat())).await;
    };
    let (reply, ()) = tokio::join!(call, serve);
    assert_eq!(reply.expect("a reply").sidecars, [&b"small"[..], &large]);
}

/// A call is sent, the server answers it with these bytes and closes the connection.
async fn answered_with(answer: impl FnOnce(i32) -> Vec<u8>) -> RpcError {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        peer.send(&answer(header.call_id)).await;
    };
    let (result, ()) = tokio::join!(ping(&messenger, &server), serve);
    let error = result.expect_err("no proper reply");
    // In every case the next call gets a new connection.
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        peer.reply(header.call_id, b"").await;
    };
    let (result, ()) = tokio::join!(ping(&messenger, &server), serve);
    result.expect("a reply");
    error
}

#[tokio::test]
async fn malformed_replies_end_the_connection_and_say_why() {
    let ok = |call_id| ResponseHeaderPb { call_id: Some(call_id), ..ResponseHeaderPb::default() };
    type Answer = Box<dyn FnOnce(i32) -> Vec<u8>>;
    let cases: [(&str, Answer); 5] = [
        ("larger than the limit", Box::new(|_| vec![0x7f, 0xff, 0xff, 0xff])),
        ("ends inside its header", Box::new(|_| vec![0, 0, 0, 2, 0x7f, 0])),
        ("no call id", Box::new(|_| frame(&ResponseHeaderPb::default(), b""))),
        ("no call 4711 is in flight", Box::new(move |_| frame(&ok(4711), b""))),
        (
            "bytes follow",
            Box::new(move |call_id| {
                let mut bytes = frame(&ok(call_id), b"");
                bytes[3] += 1;
                bytes.push(0);
                bytes
            }),
        ),
    ];
    for (text, answer) in cases {
        let error = answered_with(answer).await;
        assert!(matches!(error, RpcError::Malformed { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_reply_that_does_not_decode_fails_only_its_call() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        peer.reply(header.call_id, &[0xff]).await;
        let (header, _) = peer.read_frame().await;
        peer.reply(header.call_id, &[]).await;
    };
    let calls = async {
        let error = ping(&messenger, &server).await.expect_err("not a message");
        assert!(matches!(error, RpcError::Malformed { .. }), "{error}");
        ping(&messenger, &server).await.expect("a reply on the same connection");
    };
    tokio::join!(calls, serve);
}

#[tokio::test]
async fn a_closed_connection_names_the_calls_in_flight() {
    for (half_frame, text) in [(false, "the server closed it"), (true, "inside a frame")] {
        let (listener, server) = listen().await;
        let messenger = Messenger::new(options());
        let serve = async {
            let mut peer = Peer::accept(&listener).await;
            for _ in 0..2 {
                peer.read_frame().await;
            }
            if half_frame {
                peer.send(&[0, 0, 1]).await;
            }
        };
        let request = PingRequestPb {};
        let call_options = soon();
        let write = messenger.call::<_, PingResponsePb>(&server, &WRITE, &request, &call_options);
        let (pinged, written, ()) = tokio::join!(ping(&messenger, &server), write, serve);
        for error in [pinged.expect_err("closed"), written.expect_err("closed")] {
            assert!(!error.is_unsent());
            let shown = error.to_string();
            for part in [text, "2 calls", "Ping #0", "Write #1"] {
                assert!(shown.contains(part), "{shown}");
            }
        }
    }
}

#[tokio::test]
async fn only_a_fatal_error_ends_the_connection() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        peer.refuse(header.call_id, RpcErrorCodePb::ErrorServerTooBusy).await;
        let (header, _) = peer.read_frame().await;
        peer.refuse(header.call_id, RpcErrorCodePb::FatalServerShuttingDown).await;
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        peer.reply(header.call_id, b"").await;
    };
    let calls = async {
        for expected in
            [RpcErrorCodePb::ErrorServerTooBusy, RpcErrorCodePb::FatalServerShuttingDown]
        {
            match ping(&messenger, &server).await.expect_err("refused") {
                RpcError::Remote { code, method, .. } => {
                    assert_eq!((code, method), (expected, "Ping"))
                }
                other => panic!("{other}"),
            }
        }
        ping(&messenger, &server).await.expect("a reply on another connection");
    };
    tokio::join!(calls, serve);
}

#[tokio::test]
async fn a_failed_negotiation_fails_its_waiting_calls() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let serve = async {
        let mut peer = Peer::accept_raw(&listener).await;
        peer.read_frame().await;
        peer.refuse(NEGOTIATION_CALL_ID, RpcErrorCodePb::FatalInvalidAuthenticationToken).await;
    };
    let (first, second, ()) =
        tokio::join!(ping(&messenger, &server), ping(&messenger, &server), serve);
    for error in [first.expect_err("refused"), second.expect_err("refused")] {
        assert!(error.is_unsent());
        let code = RpcErrorCodePb::FatalInvalidAuthenticationToken;
        let RpcError::Negotiation { source, .. } = error else { panic!("{error}") };
        assert_eq!(source, NegotiationError::Refused { code, message: "no".to_owned() });
    }
}

#[tokio::test]
async fn rejected_plain_text_is_followed_by_tls() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let serve = async {
        let mut offers = Vec::new();
        for _ in 0..2 {
            let mut peer = Peer::accept_raw(&listener).await;
            let (_, body) = peer.read_frame().await;
            offers.push(NegotiatePb::decode(body).expect("a message").supported_features);
            peer.refuse(NEGOTIATION_CALL_ID, RpcErrorCodePb::FatalUnauthorized).await;
        }
        offers
    };
    let (result, offers) = tokio::join!(ping(&messenger, &server), serve);
    assert!(matches!(result, Err(RpcError::Negotiation { .. })));
    assert_eq!(offers, [vec![1], vec![1, 2, 3]]);
}

#[tokio::test]
async fn an_unreachable_server_fails_the_call_at_once() {
    let (listener, server) = listen().await;
    drop(listener);
    let error = ping(&Messenger::new(options()), &server).await.expect_err("nobody listens");
    assert!(matches!(&error, RpcError::Network { .. }) && error.is_unsent(), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_negotiate_is_given_up() {
    let negotiation_timeout = Duration::from_millis(50);
    let (_listener, server) = listen().await;
    let messenger = Messenger::new(MessengerOptions { negotiation_timeout, ..options() });
    let started = Instant::now();
    let error = ping(&messenger, &server).await.expect_err("nobody answers");
    assert!(matches!(&error, RpcError::Network { .. }) && error.is_unsent(), "{error}");
    assert!(started.elapsed() >= negotiation_timeout);
}

#[tokio::test]
async fn a_late_reply_is_not_taken_for_a_wrong_one() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let unanswered = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        (peer, header.call_id)
    };
    let request = PingRequestPb {};
    let short = within(Duration::from_millis(50));
    let call = messenger.call::<_, PingResponsePb>(&server, &PING, &request, &short);
    let (result, (mut peer, late_call_id)) = tokio::join!(call, unanswered);
    let error = result.expect_err("nobody answered");
    assert!(matches!(error, RpcError::Timeout { method: "Ping", .. }), "{error}");
    let serve = async {
        let (header, _) = peer.read_frame().await;
        peer.reply(late_call_id, b"").await;
        peer.reply(header.call_id, b"").await;
    };
    let (result, ()) = tokio::join!(ping(&messenger, &server), serve);
    result.expect("a reply on the same connection");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_opened_again() {
    let keep_alive = Duration::from_millis(50);
    let (listener, server) = listen().await;
    let messenger = Messenger::new(MessengerOptions { keep_alive, ..options() });
    for _ in 0..2 {
        let serve = async {
            let mut peer = Peer::accept(&listener).await;
            let (header, _) = peer.read_frame().await;
            let used = Instant::now();
            peer.reply(header.call_id, b"").await;
            let mut rest = Vec::new();
            peer.stream.read_to_end(&mut rest).await.expect("the end of the connection");
            assert!(rest.is_empty());
            assert!(used.elapsed() >= keep_alive);
        };
        let (result, ()) = tokio::join!(ping(&messenger, &server), serve);
        result.expect("a reply");
    }
}

#[tokio::test]
async fn no_more_calls_are_sent_than_may_be_in_flight() {
    const CALLS: usize = 20;
    const IN_FLIGHT: usize = 3;
    let (listener, server) = listen().await;
    let messenger =
        Messenger::new(MessengerOptions { calls_in_flight_max: IN_FLIGHT, ..options() });
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let mut unanswered = std::collections::VecDeque::new();
        for _ in 0..CALLS {
            if unanswered.len() == IN_FLIGHT {
                // All other tasks on this runtime have had their turn, so another call would have
                // arrived.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                let nothing = peer.stream.try_read(&mut [0]).map_err(|error| error.kind());
                assert_eq!(nothing, Err(std::io::ErrorKind::WouldBlock));
                let call_id = unanswered.pop_front().expect("not empty");
                peer.reply(call_id, b"").await;
            }
            unanswered.push_back(peer.read_frame().await.0.call_id);
        }
        for call_id in unanswered {
            peer.reply(call_id, b"").await;
        }
    };
    let (results, ()) =
        tokio::join!(join_all((0..CALLS).map(|_| ping(&messenger, &server))), serve);
    for result in results {
        result.expect("a reply");
    }
}

#[tokio::test]
async fn a_call_larger_than_the_queue_is_sent_alone() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(MessengerOptions { queued_bytes_max: 1000, ..options() });
    let body = Bytes::from(vec![7; 5000]);
    let calls = (0..5).map(|_| {
        let (messenger, server, pieces) = (&messenger, &server, vec![body.clone()]);
        async move { messenger.call_pieces::<PingResponsePb>(server, &WRITE, pieces, &soon()).await }
    });
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        for _ in 0..5 {
            let (header, received) = peer.read_frame().await;
            assert_eq!(received, body);
            peer.reply(header.call_id, b"").await;
        }
    };
    let (results, ()) = tokio::join!(join_all(calls), serve);
    for result in results {
        result.expect("a reply");
    }
}

#[tokio::test]
async fn a_call_cancelled_before_sending_is_not_sent() {
    let (listener, server) = listen().await;
    let messenger = Messenger::new(options());
    let request = PingRequestPb {};
    let expired = within(Duration::ZERO);
    let call = messenger.call::<_, PingResponsePb>(&server, &WRITE, &request, &expired);
    let error = call.await.expect_err("too late from the beginning");
    assert!(matches!(error, RpcError::Timeout { .. }), "{error}");
    let serve = async {
        let mut peer = Peer::accept(&listener).await;
        let (header, _) = peer.read_frame().await;
        peer.reply(header.call_id, b"").await;
        header.remote_method.expect("a method").method_name
    };
    let (result, method) = tokio::join!(ping(&messenger, &server), serve);
    result.expect("a reply");
    assert_eq!(method, "Ping");
}

#[test]
fn a_connection_outlives_the_runtime_it_was_opened_on() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let messenger = Messenger::new(options());
    let serving = runtime();
    let (listener, server) = serving.block_on(listen());
    for _ in 0..2 {
        let serve = async {
            let mut peer = Peer::accept(&listener).await;
            let (header, _) = peer.read_frame().await;
            peer.reply(header.call_id, b"").await;
        };
        std::thread::scope(|scope| {
            scope.spawn(|| serving.block_on(serve));
            runtime().block_on(ping(&messenger, &server)).expect("a reply");
        });
    }
}
