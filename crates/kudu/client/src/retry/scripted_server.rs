//! A server that speaks Kudu's RPC and answers from a test's script.
//!
//! It negotiates in plain text, records every call in order, and calls the test's script for each
//! answer. It can refuse, fall silent and close the connection on demand, which a real server
//! cannot.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::proto::rpc::{
    ErrorStatusPb, NegotiatePb, NegotiateStepPb, RequestHeaderPb, RequestIdPb, ResponseHeaderPb,
    RpcErrorCodePb, SaslMechanismPb,
};
use crate::types::HostPort;

/// A call that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) body: Bytes,
    pub(crate) request_id: Option<RequestIdPb>,
}

/// The server's reaction to a call.
pub(crate) enum ScriptedAnswer {
    Message(Vec<u8>),
    Refuse(RpcErrorCodePb),
    Close,
    Silence,
}

/// Answers with a message.
pub(crate) fn message(message: &impl Message) -> ScriptedAnswer {
    ScriptedAnswer::Message(message.encode_to_vec())
}

type Script = dyn Fn(&Call) -> ScriptedAnswer + Send + Sync;

/// A running server; it ends with the test's runtime.
pub(crate) struct ScriptedServer {
    pub(crate) address: HostPort,
    calls: Arc<Mutex<Vec<Call>>>,
    script: Arc<Mutex<Arc<Script>>>,
}

impl ScriptedServer {
    pub(crate) async fn start(
        script: impl Fn(&Call) -> ScriptedAnswer + Send + Sync + 'static,
    ) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = HostPort::new("127.0.0.1", listener.local_addr().unwrap().port());
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let script: Arc<Mutex<Arc<Script>>> = Arc::new(Mutex::new(Arc::new(script)));
        let (seen, answers) = (calls.clone(), script.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, seen.clone(), answers.clone()));
            }
        });
        ScriptedServer { address, calls, script }
    }

    /// Changes the script.
    pub(crate) fn set_script(
        &self,
        script: impl Fn(&Call) -> ScriptedAnswer + Send + Sync + 'static,
    ) {
        *self.script.lock() = Arc::new(script);
    }

    /// The calls of this method so far.
    pub(crate) fn calls(&self, method: &str) -> Vec<Call> {
        self.calls.lock().iter().filter(|call| call.method == method).cloned().collect()
    }
}

async fn serve(
    mut socket: TcpStream,
    calls: Arc<Mutex<Vec<Call>>>,
    script: Arc<Mutex<Arc<Script>>>,
) -> Option<()> {
    let mut hello = [0; 7];
    socket.read_exact(&mut hello).await.ok()?;
    assert_eq!(&hello[..4], b"hrpc");
    loop {
        let (header, body) = read_frame(&mut socket).await?;
        match header.call_id {
            -33 => negotiate(&mut socket, &body).await?,
            -3 => {}
            call_id => {
                let call = Call {
                    method: header.remote_method?.method_name,
                    body,
                    request_id: header.request_id,
                };
                calls.lock().push(call.clone());
                let script = script.lock().clone();
                answer(&mut socket, call_id, script(&call)).await?;
            }
        }
    }
}

async fn answer(socket: &mut TcpStream, call_id: i32, answer: ScriptedAnswer) -> Option<()> {
    match answer {
        ScriptedAnswer::Message(body) => write_frame(socket, call_id, false, &body).await,
        ScriptedAnswer::Refuse(code) => {
            let status = ErrorStatusPb {
                message: "scripted".to_owned(),
                code: Some(code as i32),
                unsupported_feature_flags: Vec::new(),
            };
            write_frame(socket, call_id, true, &status.encode_to_vec()).await
        }
        ScriptedAnswer::Close => None,
        ScriptedAnswer::Silence => Some(()),
    }
}

async fn negotiate(socket: &mut TcpStream, body: &Bytes) -> Option<()> {
    let request = NegotiatePb::decode(body.clone()).ok()?;
    let reply = if request.step == Some(NegotiateStepPb::Negotiate as i32) {
        let mechanism = SaslMechanismPb { mechanism: "PLAIN".to_owned() };
        NegotiatePb {
            step: Some(NegotiateStepPb::Negotiate as i32),
            supported_features: vec![1],
            sasl_mechanisms: vec![mechanism],
            authn_types: request.authn_types.into_iter().take(1).collect(),
            ..NegotiatePb::default()
        }
    } else {
        NegotiatePb { step: Some(NegotiateStepPb::SaslSuccess as i32), ..NegotiatePb::default() }
    };
    write_frame(socket, -33, false, &reply.encode_to_vec()).await
}

async fn read_frame(socket: &mut TcpStream) -> Option<(RequestHeaderPb, Bytes)> {
    let length = socket.read_u32().await.ok()?;
    let mut frame = vec![0; length as usize];
    socket.read_exact(&mut frame).await.ok()?;
    let mut frame = Bytes::from(frame);
    let header = RequestHeaderPb::decode_length_delimited(&mut frame).ok()?;
    let body_bytes = prost::decode_length_delimiter(&mut frame).ok()?;
    assert_eq!(body_bytes, frame.len());
    Some((header, frame))
}

async fn write_frame(
    socket: &mut TcpStream,
    call_id: i32,
    is_error: bool,
    body: &[u8],
) -> Option<()> {
    let header = ResponseHeaderPb {
        call_id: call_id.into(),
        is_error: Some(is_error),
        sidecar_offsets: Vec::new(),
    };
    let mut frame = header.encode_length_delimited_to_vec();
    prost::encode_length_delimiter(body.len(), &mut frame).unwrap();
    frame.extend_from_slice(body);
    socket.write_u32(frame.len() as u32).await.ok()?;
    socket.write_all(&frame).await.ok()
}
