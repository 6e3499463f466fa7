//! The documents of a collection in key order, a page at a time, over all vbuckets of this node.
//!
//! Owns: the page, which is the first documents of a range of keys. Memory knows every key, unless
//! whole documents were evicted or the bucket is loading; then the store is read as well, and a
//! version in memory precedes that of the store.
//!
//! Invariants: a page holds at most as many rows as were asked for; no lock is held across slices
//! of a walk. A page is no snapshot: each document is shown as it was at some moment of the call. A
//! page costs a walk over all keys, so this is for people and not for programs, which have range
//! scans. Called by the admin HTTP, on threads that may wait for the disk.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use oribi_storage::{Record, StoreError};
use oribi_types::{CollectionId, Datatype, DocKey, Timestamp, Vbid};

use super::Bucket;
use crate::item::ItemRef;
use crate::vbucket::{InMemory, VBucket};

#[derive(Debug, Clone)]
pub struct ListRequest {
    pub collection: CollectionId,
    pub from: Bound<Vec<u8>>,
    pub until: Bound<Vec<u8>>,
    pub rows_max: usize,
    /// Documents that have expired by then are not listed.
    pub now: Timestamp,
}

/// One row of a page.
#[derive(Debug)]
pub struct ListedDocument {
    pub flags: u32,
    /// Expiry in UNIX seconds, 0 for none.
    pub expiry: u32,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// Length of the value as stored, attributes included.
    pub value_bytes: usize,
    /// The document, if it is in memory; its value may be evicted.
    pub item: Option<ItemRef>,
}

pub type ListedPage = BTreeMap<Box<[u8]>, ListedDocument>;

/// Why there is no page.
#[derive(Debug)]
pub enum ListError {
    /// The caller's time was over first.
    Late,
    /// A vbucket commits durable writes that it inherited.
    Recommitting,
    /// The store cannot be read.
    Store(StoreError),
}

/// A page in progress.
struct Page<'a> {
    request: &'a ListRequest,
    rows: ListedPage,
}

impl Page<'_> {
    /// True when this key and all later ones are outside of the page.
    fn is_beyond(&self, key: &[u8]) -> bool {
        let is_after_end = match &self.request.until {
            Bound::Included(end) => key > end.as_slice(),
            Bound::Excluded(end) => key >= end.as_slice(),
            Bound::Unbounded => false,
        };
        let last = || self.rows.last_key_value().map(|(last, _)| &**last);
        is_after_end
            || self.rows.len() >= self.request.rows_max && last().is_none_or(|last| key > last)
    }

    /// True when the key belongs to the page as far as it is known.
    fn wants(&self, key: &[u8]) -> bool {
        let is_before = match &self.request.from {
            Bound::Included(start) => key < start.as_slice(),
            Bound::Excluded(start) => key <= start.as_slice(),
            Bound::Unbounded => false,
        };
        !is_before && !self.is_beyond(key)
    }

    fn put(&mut self, key: &[u8], row: ListedDocument) {
        self.rows.insert(key.into(), row);
        while self.rows.len() > self.request.rows_max {
            self.rows.pop_last();
        }
        assert!(self.rows.len() <= self.request.rows_max, "a page has at most the requested rows");
    }

    fn put_item(&mut self, item: &ItemRef) {
        let row = ListedDocument {
            flags: item.flags(),
            expiry: item.expiry(),
            datatype: item.datatype(),
            value_bytes: item.value_bytes(),
            item: Some(item.clone()),
        };
        self.put(item.key().key, row);
    }

    /// Adds the document of a stored record: its version in memory, else the record itself.
    fn put_record(&mut self, vbucket: &VBucket, record: &Record<'_>) {
        let is_expired = record.expiry != 0 && record.expiry <= self.request.now.unix_s();
        match vbucket.in_memory(record.key, self.request.now) {
            InMemory::Live(item) => self.put_item(&item),
            InMemory::Nothing if !record.deleted && !is_expired => {
                let row = ListedDocument {
                    flags: record.flags,
                    expiry: record.expiry,
                    datatype: record.datatype,
                    value_bytes: record.value.len(),
                    item: None,
                };
                self.put(record.key.key, row);
            }
            InMemory::Gone | InMemory::Nothing => {}
        }
    }
}

impl Bucket {
    /// True when every document of the bucket is in memory, with or without its value.
    pub fn has_every_key(&self) -> bool {
        self.vbuckets().iter().all(VBucket::has_every_key)
    }

    /// The first documents of a range of keys in a collection, of the vbuckets that this node
    /// serves. May read the disk. Calls `may_continue` often, and ends without a page when it is
    /// false.
    ///
    /// # Errors
    /// [`ListError::Late`] after `may_continue` was false, [`ListError::Recommitting`], or the
    /// store's error.
    pub fn list_documents(
        &self,
        request: &ListRequest,
        may_continue: &mut dyn FnMut() -> bool,
    ) -> Result<ListedPage, ListError> {
        let mut page = Page { request, rows: ListedPage::new() };
        for (number, vbucket) in self.vbuckets().iter().enumerate() {
            if !vbucket.is_serving() {
                continue;
            }
            if !vbucket.serves_clients() {
                return Err(ListError::Recommitting);
            }
            if !vbucket.has_every_key() {
                let vbid = Vbid(u16::try_from(number).expect("a bucket has at most 1024 vbuckets"));
                self.list_stored((vbid, vbucket), &mut page, may_continue)?;
            }
            let visit = &mut |item: &ItemRef| {
                if page.wants(item.key().key) {
                    page.put_item(item);
                }
            };
            if !vbucket.visit_live(request.collection, request.now, may_continue, visit) {
                return Err(ListError::Late);
            }
        }
        Ok(page.rows)
    }

    fn list_stored(
        &self,
        (vbid, vbucket): (Vbid, &VBucket),
        page: &mut Page<'_>,
        may_continue: &mut dyn FnMut() -> bool,
    ) -> Result<(), ListError> {
        let start = match &page.request.from {
            Bound::Included(key) | Bound::Excluded(key) => key.clone(),
            Bound::Unbounded => Vec::new(),
        };
        let from = DocKey { collection: page.request.collection, key: &start };
        let mut is_late = false;
        let scanned = self.scan_persisted(vbid, from, &mut |record| {
            is_late = !may_continue();
            if is_late || page.is_beyond(record.key.key) {
                return ControlFlow::Break(());
            }
            if page.wants(record.key.key) {
                page.put_record(vbucket, &record);
            }
            ControlFlow::Continue(())
        });
        match scanned {
            Ok(()) if is_late => Err(ListError::Late),
            Ok(()) => Ok(()),
            Err(error) => Err(ListError::Store(error)),
        }
    }
}
