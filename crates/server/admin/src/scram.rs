//! SCRAM over HTTP (RFC 7804), as clusters that replicate into this one log in.
//!
//! Owns: the header of each step, and the exchanges in progress:
//!
//! ```text
//! C: Authorization: SCRAM-SHA-512 data=CLIENT_FIRST             401
//! S: WWW-Authenticate: SCRAM-SHA-512 sid=SID,data=SERVER_FIRST
//! C: Authorization: SCRAM-SHA-512 sid=SID,data=CLIENT_FINAL     the request is served
//! S: Authentication-Info: sid=SID,data=SERVER_FINAL
//! ```
//!
//! Invariants: an exchange answers one final message, within [`DEADLINE`]; at most
//! [`EXCHANGES_MAX`] are kept, [`EXCHANGES_PER_PEER_MAX`] of one address; the oldest one of the
//! address, or else of all, makes way. The two messages of an exchange may
//! come over different connections, because clients choose among idle ones. The messages themselves
//! are those of the data port (`auth::sasl`). Caller: `login`.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use hyper::header::HeaderValue;
use parking_lot::Mutex;

use oribi_auth::{SaslServer, SaslStep, UserStore};
use oribi_system::random::random_bytes;

/// Mechanisms by the names of HTTP and of the data port.
const MECHANISMS: [(&str, &[u8]); 3] = [
    ("SCRAM-SHA-512", b"SCRAM-SHA512"),
    ("SCRAM-SHA-256", b"SCRAM-SHA256"),
    ("SCRAM-SHA-1", b"SCRAM-SHA1"),
];

/// Exchanges at once. Each holds some KiB at most.
const EXCHANGES_MAX: usize = 256;

/// The same from one address, so that one client does not end the exchanges of others.
const EXCHANGES_PER_PEER_MAX: usize = 32;
const _: () = assert!(EXCHANGES_PER_PEER_MAX < EXCHANGES_MAX, "no peer has all");

/// Time between the two messages of a client.
const DEADLINE: Duration = Duration::from_secs(10);

/// Random bytes in the id of an exchange.
const SID_BYTES: usize = 18;
const _: () = assert!(SID_BYTES >= 16, "nobody guesses the id of an exchange");

/// A message of a client.
pub(super) struct ScramMessage {
    mechanism: (&'static str, &'static [u8]),
    sid: Option<String>,
    data: Vec<u8>,
}

/// Exchanges that wait for their client's final message, oldest first.
#[derive(Default)]
pub(super) struct ScramExchanges {
    pending: Mutex<VecDeque<Pending>>,
}

struct Pending {
    peer: IpAddr,
    sid: String,
    began: Instant,
    server: SaslServer,
}

/// The next action after a message.
pub(super) enum ScramStep {
    /// Answer 401 with this `WWW-Authenticate`.
    Challenge(HeaderValue),
    /// The outcome of the exchange, which may need a key derivation.
    Outcome {
        /// The id of the exchange.
        sid: String,
        /// The name that the client claims.
        name: String,
        /// Neither `Continue` nor a start.
        step: SaslStep,
    },
}

impl ScramMessage {
    /// Parses an `Authorization` header; `None` for other schemes, and for malformed messages.
    pub(super) fn parse(header: &str) -> Option<ScramMessage> {
        let (scheme, attributes) = header.split_once(' ')?;
        let mechanism =
            MECHANISMS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(scheme))?;
        let (mut sid, mut data) = (None, None);
        for attribute in attributes.split(',') {
            let (name, value) = attribute.trim().split_once('=')?;
            let value = value.trim_matches('"');
            match name {
                "sid" => sid = Some(value.to_owned()),
                "data" => data = Some(BASE64.decode(value).ok()?),
                // The realm, and what later versions may add.
                _ => {}
            }
        }
        Some(ScramMessage { mechanism, sid, data: data? })
    }
}

impl ScramExchanges {
    /// Handles a message from an address, at a time.
    pub(super) fn step(
        &self,
        message: ScramMessage,
        users: &Arc<UserStore>,
        (peer, now): (IpAddr, Instant),
    ) -> ScramStep {
        let (http_name, sasl_name) = message.mechanism;
        let Some(sid) = message.sid else {
            let mut server = SaslServer::new();
            return match server.start(sasl_name, &message.data, users) {
                SaslStep::Continue(server_first) => {
                    let sid = URL_SAFE_NO_PAD.encode(random_bytes::<SID_BYTES>());
                    let challenge = header(http_name, &sid, &server_first);
                    self.keep(Pending { peer, sid, began: now, server });
                    ScramStep::Challenge(challenge)
                }
                step => outcome(String::new(), &server, step),
            };
        };
        match self.take(&sid, now) {
            Some(mut server) => {
                let step = server.step(sasl_name, &message.data);
                outcome(sid, &server, step)
            }
            None => outcome(sid, &SaslServer::new(), SaslStep::Failed),
        }
    }

    fn keep(&self, exchange: Pending) {
        let mut pending = self.pending.lock();
        let is_own = |other: &Pending| other.peer == exchange.peer;
        if pending.iter().filter(|other| is_own(other)).count() >= EXCHANGES_PER_PEER_MAX {
            let oldest = pending.iter().position(is_own);
            oldest.map(|oldest| pending.remove(oldest));
        } else if pending.len() >= EXCHANGES_MAX {
            pending.pop_front();
        }
        pending.push_back(exchange);
        assert!(pending.len() <= EXCHANGES_MAX, "exchanges are bounded");
    }

    fn take(&self, sid: &str, now: Instant) -> Option<SaslServer> {
        let mut pending = self.pending.lock();
        pending.retain(|exchange| now.saturating_duration_since(exchange.began) <= DEADLINE);
        let index = pending.iter().position(|exchange| exchange.sid == sid)?;
        pending.remove(index).map(|exchange| exchange.server)
    }
}

fn outcome(sid: String, server: &SaslServer, step: SaslStep) -> ScramStep {
    ScramStep::Outcome { sid, name: server.claimed_name().to_owned(), step }
}

/// `Authentication-Info` of a login that succeeded.
pub(super) fn authentication_info(sid: &str, server_final: &[u8]) -> HeaderValue {
    value(format!("sid={sid},data={}", BASE64.encode(server_final)))
}

fn header(mechanism: &str, sid: &str, data: &[u8]) -> HeaderValue {
    value(format!("{mechanism} sid={sid},data={}", BASE64.encode(data)))
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("base64 and names of mechanisms are printable")
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_auth::testing::{scram_final, scram_first};

    const NAME: &str = "Administrator";

    fn first() -> ScramMessage {
        let data = BASE64.encode(scram_first(NAME));
        ScramMessage::parse(&format!("SCRAM-SHA-512 data={data}")).unwrap()
    }

    fn peer(number: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, number as u8])
    }

    /// The server's challenge as id and message.
    fn challenge(step: ScramStep) -> (String, String) {
        let ScramStep::Challenge(header) = step else { panic!("no challenge") };
        let header = header.to_str().unwrap().strip_prefix("SCRAM-SHA-512 sid=").unwrap();
        let (sid, data) = header.split_once(",data=").unwrap();
        (sid.to_owned(), String::from_utf8(BASE64.decode(data).unwrap()).unwrap())
    }

    fn last(sid: &str, server_first: &str) -> ScramMessage {
        let (message, _) = scram_final(NAME, "password", server_first);
        let data = BASE64.encode(message);
        ScramMessage::parse(&format!("scram-sha-512 realm=\"x\", sid={sid}, data={data}")).unwrap()
    }

    fn is_proven(step: ScramStep) -> bool {
        let ScramStep::Outcome { name, step, .. } = step else { panic!("a challenge") };
        matches!(step.run(), SaslStep::Success { .. }) && name == NAME
    }

    #[test]
    fn an_exchange_answers_once_and_in_time() {
        let (users, now) = (Arc::new(UserStore::development()), Instant::now());
        let at = |now: Instant| (peer(1), now);
        let exchanges = ScramExchanges::default();
        let (sid, server_first) = challenge(exchanges.step(first(), &users, at(now)));
        assert!(is_proven(exchanges.step(last(&sid, &server_first), &users, at(now + DEADLINE))));
        assert!(!is_proven(exchanges.step(last(&sid, &server_first), &users, at(now))));

        let (sid, server_first) = challenge(exchanges.step(first(), &users, at(now)));
        let late = now + DEADLINE + Duration::from_millis(1);
        assert!(!is_proven(exchanges.step(last(&sid, &server_first), &users, at(late))));
        assert!(exchanges.pending.lock().is_empty());
    }

    #[test]
    fn the_oldest_exchange_makes_way() {
        let (users, now) = (Arc::new(UserStore::development()), Instant::now());
        let exchanges = ScramExchanges::default();
        // The peers take turns, so that none has more than its share.
        let peers = EXCHANGES_MAX.div_ceil(EXCHANGES_PER_PEER_MAX) + 1;
        let begin = |number: usize| {
            let at = (peer(number % peers), now);
            challenge(exchanges.step(first(), &users, at))
        };
        let all: Vec<_> = (0..=EXCHANGES_MAX).map(begin).collect();
        assert_eq!(exchanges.pending.lock().len(), EXCHANGES_MAX);
        let proven = |(sid, server_first): &(String, String)| {
            is_proven(exchanges.step(last(sid, server_first), &users, (peer(0), now)))
        };
        assert_eq!((proven(&all[0]), proven(&all[1])), (false, true));
    }

    #[test]
    fn one_address_ends_only_its_own_exchanges() {
        let (users, now) = (Arc::new(UserStore::development()), Instant::now());
        let exchanges = ScramExchanges::default();
        let begin = |number| challenge(exchanges.step(first(), &users, (peer(number), now)));
        let (sid, server_first) = begin(1);
        let flood: Vec<_> = (0..2 * EXCHANGES_MAX).map(|_| begin(2)).collect();
        assert_eq!(exchanges.pending.lock().len(), 1 + EXCHANGES_PER_PEER_MAX);
        let prove = |sid: &str, server_first: &str| {
            is_proven(exchanges.step(last(sid, server_first), &users, (peer(1), now)))
        };
        assert!(prove(&sid, &server_first));
        assert!(!prove(&flood[0].0, &flood[0].1));
    }

    #[test]
    fn malformed_messages_are_none() {
        for header in [
            "",
            "SCRAM-SHA-512",
            "SCRAM-SHA-512 sid=x",
            "SCRAM-SHA-512 data=%",
            "SCRAM-SHA-512 data",
            "SCRAM-SHA-999 data=bg==",
            "Basic QQ==",
        ] {
            assert!(ScramMessage::parse(header).is_none(), "{header}");
        }
    }
}
