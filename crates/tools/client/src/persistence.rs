//! Whether a write is on disk: observing a vbucket's sequence numbers.

use bytes::{Buf, Bytes};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_types::{Seqno, VbUuid, Vbid};

use crate::client::Client;
use crate::error::{ClientError, MalformedResponse, Site};
use crate::reply::MutationToken;

/// How far a vbucket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObservedSeqno {
    /// Present history.
    pub vb_uuid: VbUuid,
    /// Everything up to here is on disk.
    pub persisted: Seqno,
    /// Last mutation in memory.
    pub current: Seqno,
    /// When the history that was asked about has ended: how far it came. What it had beyond that is
    /// lost.
    pub ended: Option<Seqno>,
}

/// State of a mutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Persistence {
    /// It is on disk.
    Persisted,
    /// It is in memory, and on its way to the disk.
    Pending,
    /// The server lost it: the history that it belongs to ended before it.
    Lost,
}

/// Formats of the answer.
const SAME_HISTORY: u8 = 0;
const OTHER_HISTORY: u8 = 1;

impl ObservedSeqno {
    pub(crate) fn decode(
        bytes: Bytes,
        asked: MutationHistory,
    ) -> Result<ObservedSeqno, MalformedResponse> {
        let (answered, observed) = ObservedSeqno::decode_any(bytes)?;
        match answered == asked {
            true => Ok(observed),
            false => Err(MalformedResponse::new("figures of another vbucket than was asked for")),
        }
    }

    /// Decodes the figures of a vbucket, whatever history was asked about.
    pub(crate) fn decode_present(
        bytes: Bytes,
        vbid: Vbid,
    ) -> Result<ObservedSeqno, MalformedResponse> {
        let ((answered, _), observed) = ObservedSeqno::decode_any(bytes)?;
        match answered == vbid {
            true => Ok(observed),
            false => Err(MalformedResponse::new("figures of another vbucket than was asked for")),
        }
    }

    fn decode_any(mut bytes: Bytes) -> Result<(MutationHistory, ObservedSeqno), MalformedResponse> {
        let cut_off = |_| MalformedResponse::new("an observed vbucket's figures are cut off");
        let format = bytes.try_get_u8().map_err(cut_off)?;
        let vbid = Vbid(bytes.try_get_u16().map_err(cut_off)?);
        let mut next = || bytes.try_get_u64().map_err(cut_off);
        let vb_uuid = VbUuid(next()?);
        let persisted = Seqno(next()?);
        let current = Seqno(next()?);
        let (answered, ended) = match format {
            SAME_HISTORY => (vb_uuid, None),
            OTHER_HISTORY => (VbUuid(next()?), Some(Seqno(next()?))),
            _ => return Err(MalformedResponse::new("unknown format of an observed vbucket")),
        };
        let observed = ObservedSeqno { vb_uuid, persisted, current, ended };
        Ok(((vbid, answered), observed))
    }

    fn persistence_of(&self, seqno: Seqno) -> Persistence {
        // What belongs to the end of the old history is the start of the present one.
        match self.ended {
            Some(ended) if seqno > ended => Persistence::Lost,
            _ if seqno <= self.persisted => Persistence::Persisted,
            _ => Persistence::Pending,
        }
    }
}

/// Vbucket and history.
pub(crate) type MutationHistory = (Vbid, VbUuid);

impl Client {
    /// How far a vbucket is in the history `vb_uuid`. [`crate::RejectionKind::NotFound`] when it
    /// never had that history. Not repeated when a node refuses or the connection ends.
    pub async fn observe_seqno(
        &self,
        vbid: Vbid,
        vb_uuid: VbUuid,
    ) -> Result<ObservedSeqno, ClientError> {
        let parts = RequestParts { vbid, ..RequestParts::new(Opcode::ObserveSeqno) };
        let value = Bytes::copy_from_slice(&vb_uuid.0.to_be_bytes());
        let (peer, response) = self.call_vbucket(&parts, &value).await?;
        ObservedSeqno::decode(response.into_value(), (vbid, vb_uuid))
            .map_err(|error| error.at(Site { peer, operation: parts.opcode.name() }))
    }

    /// The last mutation of a vbucket; its seqno is 0 when there was none. Not repeated when a node
    /// refuses or the connection ends.
    pub async fn last_mutation(&self, vbid: Vbid) -> Result<MutationToken, ClientError> {
        let parts = RequestParts { vbid, ..RequestParts::new(Opcode::GetFailoverLog) };
        let (peer, response) = self.call_vbucket(&parts, &Bytes::new()).await?;
        // Histories and their first sequence numbers, the present one first.
        let vb_uuid = response.into_value().try_get_u64().map(VbUuid).map_err(|_| {
            let site = Site { peer, operation: parts.opcode.name() };
            MalformedResponse::new("a vbucket without a history").at(site)
        })?;
        let observed = self.observe_seqno(vbid, vb_uuid).await?;
        Ok(MutationToken { vbid, vb_uuid: observed.vb_uuid, seqno: observed.current })
    }

    /// Whether a mutation is on disk.
    pub async fn persistence(&self, mutation: &MutationToken) -> Result<Persistence, ClientError> {
        let MutationToken { vbid, vb_uuid, seqno } = *mutation;
        Ok(self.observe_seqno(vbid, vb_uuid).await?.persistence_of(seqno))
    }
}

#[cfg(test)]
mod tests {
    //! Both formats, and what is neither.

    use super::*;

    fn answer(format: u8, words: &[u64]) -> Bytes {
        let mut bytes = vec![format, 0, 7];
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
        bytes.into()
    }

    #[test]
    fn decodes_both_formats() {
        let asked = (Vbid(7), VbUuid(0xa));
        let observed = ObservedSeqno::decode(answer(0, &[0xa, 5, 9]), asked).unwrap();
        let (persisted, current) = (Seqno(5), Seqno(9));
        let same = ObservedSeqno { vb_uuid: VbUuid(0xa), persisted, current, ended: None };
        assert_eq!(observed, same);
        let observed = ObservedSeqno::decode(answer(1, &[0xb, 5, 9, 0xa, 4]), asked).unwrap();
        let ended = Some(Seqno(4));
        assert_eq!(observed, ObservedSeqno { vb_uuid: VbUuid(0xb), ended, ..same });
    }

    #[test]
    fn a_mutation_behind_the_end_of_its_history_is_lost() {
        let (persisted, current) = (Seqno(5), Seqno(9));
        let same = ObservedSeqno { vb_uuid: VbUuid(1), persisted, current, ended: None };
        let other = ObservedSeqno { ended: Some(Seqno(6)), ..same };
        use Persistence::{Lost, Pending, Persisted};
        let of =
            |observed: ObservedSeqno| [5, 6, 7].map(|seqno| observed.persistence_of(Seqno(seqno)));
        assert_eq!(of(same), [Persisted, Pending, Pending]);
        assert_eq!(of(other), [Persisted, Pending, Lost]);
    }

    #[test]
    fn refuses_what_is_neither() {
        let asked = (Vbid(7), VbUuid(0xa));
        let wrong = [
            Bytes::new(),
            answer(0, &[0xa, 5]),
            answer(1, &[0xb, 5, 9, 0xa]),
            answer(2, &[0xa, 5, 9]),
            answer(0, &[0xc, 5, 9]),
        ];
        for bytes in wrong {
            ObservedSeqno::decode(bytes, asked).expect_err("refused");
        }
        ObservedSeqno::decode(answer(0, &[0xa, 5, 9]), (Vbid(8), VbUuid(0xa))).unwrap_err();
    }
}
