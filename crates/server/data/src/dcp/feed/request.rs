//! The options of a feed, the memory its reader offers for the next line, and why a feed ends.
//!
//! Owns: these types. The admin HTTP makes one and reads the other.

use std::ops::Range;

use oribi_engine::dcp::StreamFilter;
use oribi_protocol::change_token::ChangeToken;

use crate::connection::memory::Reservation;
use crate::connection::memory::budget::Demand;

/// The options of a feed.
#[derive(Debug, Clone)]
pub struct FeedRequest {
    /// Documents and events to show.
    pub filter: StreamFilter,
    /// Vbuckets to follow; all of them exist.
    pub vbuckets: Range<u16>,
    pub from: ChangeToken,
    /// End after the changes that exist when the feed begins.
    pub until_now: bool,
    pub values: bool,
    /// Lines have extended attributes.
    pub xattrs: bool,
    /// The end of a snapshot is a line.
    pub snapshots: bool,
}

/// The memory that the reader of a feed offers for the next line.
pub struct LineBudget<'a> {
    /// Bytes that may be appended.
    pub room: usize,
    /// A share of the block that [`super::FeedStep::NeedsBlock`] asked for.
    pub block: Option<(Demand, Reservation)>,
    /// The buffer that receives the line.
    pub out: &'a mut Vec<u8>,
    /// Text before each line.
    pub prefix: &'static [u8],
}

impl LineBudget<'_> {
    pub fn begin_line(&mut self) {
        self.out.extend_from_slice(self.prefix);
    }
}

/// Why a feed ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedEnd {
    /// It has shown the changes up to its end.
    Complete,
    /// The collections that it shows were dropped.
    FilterEmpty,
    /// This node no longer serves one of the vbuckets.
    NotMyVbucket,
    /// The vbucket is not as far as the token says.
    Range,
    /// A stored document cannot be read.
    Damaged,
}
