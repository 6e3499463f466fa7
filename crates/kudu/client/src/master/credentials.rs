//! The credentials for tablet servers, and when to renew them.
//!
//! The leader hands out the cluster's CA certificates and an authentication token that is valid for
//! days. The client renews the token after three quarters of its lifetime, so that a later
//! connection still has a valid one. It soon retries a failed renewal. The module is pure; the
//! clock is a parameter. A reply without a token does not invalidate the old one: the master gives
//! no token over a connection that was authenticated by token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use tokio::time::Instant;

use crate::proto::rpc::{SignedTokenPb, TokenPb};

/// Minimum time between two attempts to renew, so that a wrong clock cannot flood the master.
const RENEWAL_DISTANCE_MIN: Duration = Duration::from_secs(1);

/// The leader's latest credentials.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    ca_certs_der: Vec<Vec<u8>>,
    authn_token: Option<SignedTokenPb>,
    renew_at: Option<Instant>,
}

impl Credentials {
    /// Takes over the credentials that a leader sent.
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

    /// Whether a renewal is due; if so, the next one is due a moment later.
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

    /// The token, if the cluster issues tokens.
    pub(crate) fn authn_token(&self) -> Option<&SignedTokenPb> {
        self.authn_token.as_ref()
    }
}

/// The remaining lifetime of a token; `None` if the token names none, zero if it has expired.
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
    fn a_bad_token_causes_no_request_storm() {
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
