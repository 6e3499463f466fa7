//! Sub-document requests over a whole connection: the answers, and the stored documents afterwards.

mod attributes;
mod requests;
mod rights;
mod states;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use crate::dispatch::tests::{Client, HandlerReply, about};

/// One spec of a list.
type SpecParts<'a> = (Opcode, u8, &'a str, &'a str);

/// A request for one path.
fn one(client: &mut Client, opcode: Opcode, flags: u8, path: &str, value: &str) -> HandlerReply {
    let extras = [&(path.len() as u16).to_be_bytes()[..], &[flags]].concat();
    let body = format!("{path}{value}");
    client.ask(&RequestParts { extras: &extras, value: body.as_bytes(), ..about(opcode, b"k") })
}

fn get(client: &mut Client, path: &str) -> Result<String, Status> {
    let reply = one(client, Opcode::SubdocGet, 0, path, "");
    match reply.status {
        Status::Success => Ok(String::from_utf8(reply.value).unwrap()),
        status => Err(status),
    }
}

/// Sends a list of look-ups; returns each one's status and value.
fn look_up(
    client: &mut Client,
    flags: &[u8],
    specs: &[SpecParts<'_>],
) -> (Status, Vec<(Status, String)>) {
    let mut list = Vec::new();
    for (opcode, flags, path, _) in specs {
        list.extend_from_slice(&[*opcode as u8, *flags]);
        list.extend_from_slice(&(path.len() as u16).to_be_bytes());
        list.extend_from_slice(path.as_bytes());
    }
    let parts = about(Opcode::SubdocMultiLookup, b"k");
    let reply = client.ask(&RequestParts { extras: flags, value: &list, ..parts });
    let mut results = Vec::new();
    // The body of an error is JSON, not a list.
    let mut rest = if reply.datatype == 0 { &reply.value[..] } else { &[] };
    while let Some(([a, b, c, d, e, f], behind)) = rest.split_first_chunk() {
        let status = Status::from_u16(u16::from_be_bytes([*a, *b])).unwrap();
        let (value, behind) = behind.split_at(u32::from_be_bytes([*c, *d, *e, *f]) as usize);
        results.push((status, String::from_utf8(value.to_vec()).unwrap()));
        rest = behind;
    }
    (reply.status, results)
}

/// A list of mutations.
fn mutate(client: &mut Client, extras: &[u8], cas: u64, specs: &[SpecParts<'_>]) -> HandlerReply {
    let mut list = Vec::new();
    for (opcode, flags, path, value) in specs {
        list.extend_from_slice(&[*opcode as u8, *flags]);
        list.extend_from_slice(&(path.len() as u16).to_be_bytes());
        list.extend_from_slice(&(value.len() as u32).to_be_bytes());
        list.extend_from_slice(path.as_bytes());
        list.extend_from_slice(value.as_bytes());
    }
    let parts = about(Opcode::SubdocMultiMutation, b"k");
    client.ask(&RequestParts { extras, cas, value: &list, ..parts })
}
