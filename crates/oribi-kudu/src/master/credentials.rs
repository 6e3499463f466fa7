//! What the client needs to authenticate with tablet servers, and when it has to be renewed.
//!
//! The leader hands out the cluster's CA certificates and an authentication token that is good for days.
//! The token is renewed when three quarters of its life are over, so that a connection that opens later still
//! finds a good one; a renewal that fails is tried again soon. Pure but for the clock, which is a parameter.
//! A reply without a token is no reason to drop the old one: a connection that was authenticated by token
//! gets none.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use tokio::time::Instant;

use crate::proto::rpc::{SignedTokenPb, TokenPb};

/// Earliest renewal after the last attempt, so that a wrong clock does not ask the master all the time.
const RENEWAL_DISTANCE_MIN: Duration = Duration::from_secs(1);

/// The credentials as last told by the leader.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    ca_certs_der: Vec<Vec<u8>>,
    authn_token: Option<SignedTokenPb>,
    renew_at: Option<Instant>,
}

impl Credentials {
    /// Takes over what a leader sent.
    pub(crate) fn update(
        &mut self,
        ca_certs_der: Vec<Vec<u8>>,
        token: Option<SignedTokenPb>,
        now: Instant,
        wall: SystemTime,
    ) {
        if !ca_certs_der.is_empty() {
            self.ca_certs_der = ca_certs_der;
        }
        if let Some(token) = token {
            self.renew_at =
                life_left(&token, wall).map(|left| now + (left * 3 / 4).max(RENEWAL_DISTANCE_MIN));
            self.authn_token = Some(token);
        }
    }

    /// Whether it is time for a new token; if so, the next time is a moment later.
    pub(crate) fn take_due_renewal(&mut self, now: Instant) -> bool {
        let is_due = self.renew_at.is_some_and(|at| at <= now);
        if is_due {
            self.renew_at = Some(now + RENEWAL_DISTANCE_MIN);
        }
        is_due
    }

    /// DER certificates of the authorities that sign the servers' certificates.
    pub(crate) fn ca_certs_der(&self) -> &[Vec<u8>] {
        &self.ca_certs_der
    }

    /// The token, if the cluster gives any.
    pub(crate) fn authn_token(&self) -> Option<&SignedTokenPb> {
        self.authn_token.as_ref()
    }
}

/// How long a token is still good; nothing for one that does not say, zero for one that is over.
fn life_left(token: &SignedTokenPb, wall: SystemTime) -> Option<Duration> {
    let token = TokenPb::decode(token.token_data.clone()?).ok()?;
    let expires = Duration::from_secs(u64::try_from(token.expire_unix_epoch_seconds?).ok()?);
    Some((UNIX_EPOCH.checked_add(expires)?).duration_since(wall).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(expires: i64) -> SignedTokenPb {
        let data = TokenPb { expire_unix_epoch_seconds: Some(expires) }.encode_to_vec();
        SignedTokenPb { token_data: Some(data.into()), ..SignedTokenPb::default() }
    }

    fn wall(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_token_is_renewed_before_it_expires() {
        let now = Instant::now();
        let mut credentials = Credentials::default();
        credentials.update(vec![vec![1]], Some(token(1100)), now, wall(1000));
        assert!(!credentials.take_due_renewal(now + Duration::from_secs(74)));
        assert!(credentials.take_due_renewal(now + Duration::from_secs(75)));
        assert!(!credentials.take_due_renewal(now + Duration::from_secs(75)));
        assert!(credentials.take_due_renewal(now + Duration::from_secs(76)));
    }

    #[test]
    fn an_expired_or_unreadable_token_does_not_cause_a_storm() {
        let now = Instant::now();
        let mut credentials = Credentials::default();
        credentials.update(Vec::new(), Some(token(10)), now, wall(1000));
        assert!(!credentials.take_due_renewal(now));
        credentials.update(Vec::new(), Some(token(i64::MIN)), now, wall(1000));
        assert!(!credentials.take_due_renewal(now + Duration::from_secs(1_000_000)));
    }

    #[test]
    fn a_reply_without_a_token_keeps_the_old_one() {
        let now = Instant::now();
        let mut credentials = Credentials::default();
        credentials.update(vec![vec![1]], Some(token(1100)), now, wall(1000));
        credentials.update(Vec::new(), None, now, wall(1000));
        assert_eq!(credentials.authn_token(), Some(&token(1100)));
        assert_eq!(credentials.ca_certs_der(), [vec![1]]);
    }
}
