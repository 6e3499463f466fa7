//! Files in memory that lose, tear and refuse what a test wants lost, torn and refused.
//!
//! Owns: what a file system may do when power goes: of everything that was not synced any part may
//! be there, by sectors, in any order; names that were not synced may be there or not. A failed
//! sync drops the bytes that it should have written: it can still be read, is no longer written by
//! a later sync, and is gone after a crash, as Linux does it. The bytes outlive the store that is
//! crashed. Callers: tests of this crate and, through [`crate::testing`], of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{LogDirectory, LogFile};
use crate::SeededRandom;

const SECTOR_BYTES: usize = 512;

/// Fault of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The power goes, in the middle of whatever the step is.
    PowerLoss,
    /// The step fails; its effect is unknown.
    Failure,
    /// From this step on there is no space.
    NoSpace,
}

#[derive(Default)]
struct Content {
    cache: Vec<u8>,
    /// The least content after a crash.
    disk: Vec<u8>,
    /// Sectors of the cache that are not on disk.
    dirty: BTreeSet<usize>,
}

impl Content {
    fn write(&mut self, bytes: &[u8], at: usize) {
        let end = at + bytes.len();
        if bytes.is_empty() {
            return;
        }
        self.cache.resize(self.cache.len().max(end), 0);
        self.cache[at..end].copy_from_slice(bytes);
        self.dirty.extend(at / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES);
    }

    fn sync(&mut self) {
        let length = self.cache.len();
        self.disk.resize(length, 0);
        for sector in std::mem::take(&mut self.dirty) {
            self.write_back(sector);
        }
        self.disk.truncate(length);
        assert_eq!(self.disk.len(), self.cache.len(), "a sync makes the length durable");
    }

    fn write_back(&mut self, sector: usize) {
        let begin = sector * SECTOR_BYTES;
        let end = (begin + SECTOR_BYTES).min(self.cache.len());
        if begin < end {
            self.disk.resize(self.disk.len().max(end), 0);
            self.disk[begin..end].copy_from_slice(&self.cache[begin..end]);
        }
    }

    /// Files after a loss of power.
    fn crash(&mut self, random: &mut SeededRandom) {
        let mode = random.below(5);
        if self.cache.len() < self.disk.len() && mode > 0 {
            self.disk.truncate(self.cache.len());
        }
        let dirty: Vec<usize> = std::mem::take(&mut self.dirty).into_iter().collect();
        let kept = random.below(dirty.len() as u64 + 1) as usize;
        for (index, sector) in dirty.into_iter().enumerate() {
            let is_kept = match mode {
                0 => false,
                1 => true,
                2 => index < kept,
                3 => index != kept,
                _ => random.below(2) == 0,
            };
            if is_kept {
                self.write_back(sector);
            }
        }
        if self.disk.len() < self.cache.len() && random.below(4) == 0 {
            // The length was written and the content was not.
            let longer = random.below((self.cache.len() - self.disk.len()) as u64) as usize;
            self.disk.resize(self.disk.len() + longer, 0);
        }
        self.cache = self.disk.clone();
    }
}

type Names = BTreeMap<String, Arc<Mutex<Content>>>;

struct State {
    names: Names,
    durable_names: Names,
    random: SeededRandom,
    steps: u64,
    /// Reads of files, and bytes that they gave.
    reads: (u64, u64),
    trouble: Option<(u64, Trouble)>,
    is_off: bool,
    is_full: bool,
    /// Free space of the file system.
    free_bytes: Option<u64>,
    block_bytes: usize,
}

impl State {
    /// Counts a step that changes something. `Ok(true)` when it is to be done in part and to fail.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_off {
            return Err(io::Error::other("simulated: the power is off"));
        }
        self.steps += 1;
        match self.trouble {
            Some((at, trouble)) if at == self.steps => {
                self.trouble = None;
                self.is_off = trouble == Trouble::PowerLoss;
                self.is_full = trouble == Trouble::NoSpace;
                Ok(trouble != Trouble::NoSpace)
            }
            _ => Ok(false),
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("simulated: I/O error")
}

/// A directory that outlives the stores in it, or one of its subdirectories: these are there from
/// the beginning, and trouble comes to all at once.
#[derive(Clone)]
pub struct SimDirectory {
    state: Arc<Mutex<State>>,
    /// Prefix of its files' names in the state, which has those of all directories.
    prefix: String,
}

impl SimDirectory {
    /// An empty directory; `seed` decides what its crashes leave, how stores in it hash, and
    /// whether its files are written in blocks of two sectors or byte by byte.
    pub fn new(seed: u64) -> SimDirectory {
        let block_bytes = [2 * SECTOR_BYTES, 1][(seed % 2) as usize];
        let state = State {
            names: Names::new(),
            durable_names: Names::new(),
            random: SeededRandom::new(seed),
            steps: 0,
            reads: (0, 0),
            trouble: None,
            is_off: false,
            is_full: false,
            free_bytes: None,
            block_bytes,
        };
        SimDirectory { state: Arc::new(Mutex::new(state)), prefix: String::new() }
    }

    /// The subdirectory of this name. Calls for trouble, sizes and contents mean all directories.
    pub(super) fn subdirectory(&self, name: &str) -> SimDirectory {
        assert!(!name.contains('/'), "a subdirectory is one level down");
        SimDirectory { state: Arc::clone(&self.state), prefix: format!("{}{name}/", self.prefix) }
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The file system says that this is left, though writes find as much as they need.
    pub fn say_free(&self, bytes: Option<u64>) {
        self.state.lock().free_bytes = bytes;
    }

    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Reads of files so far, and bytes that they gave.
    pub fn reads(&self) -> (u64, u64) {
        self.state.lock().reads
    }

    /// Plans trouble for the step that is `after` steps ahead, 1 for the next one.
    pub fn plan(&self, after: u64, trouble: Trouble) {
        assert!(after > 0, "trouble comes with a later step");
        let mut state = self.state.lock();
        state.trouble = Some((state.steps + after, trouble));
    }

    /// True while planned trouble has not come.
    pub fn is_trouble_ahead(&self) -> bool {
        self.state.lock().trouble.is_some()
    }

    /// From now on nothing works until [`SimDirectory::restart`].
    pub fn power_off(&self) {
        self.state.lock().is_off = true;
    }

    /// Everything works again, and nothing is lost: it was only the process that died.
    pub fn resume(&self) {
        let mut state = self.state.lock();
        state.is_off = false;
        self.heal_in(&mut state);
    }

    /// True while the power is off.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Drops a part of the unsynced writes; everything works again.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let all: BTreeSet<&String> = state.names.keys().chain(state.durable_names.keys()).collect();
        let mut names = Names::new();
        for name in all {
            let (now, durable) = (state.names.get(name), state.durable_names.get(name));
            let content = if state.random.below(2) == 0 { now } else { durable };
            let is_settled = now.map(Arc::as_ptr) == durable.map(Arc::as_ptr);
            if let Some(content) = if is_settled { now } else { content } {
                content.lock().crash(&mut state.random);
                names.insert(name.clone(), Arc::clone(content));
            }
        }
        state.durable_names = names.clone();
        state.names = names;
        state.is_off = false;
        self.heal_in(state);
    }

    /// No more trouble, and space again.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        self.heal_in(&mut state);
    }

    fn heal_in(&self, state: &mut State) {
        state.trouble = None;
        state.is_full = false;
    }

    /// Names of all files.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().names.keys().cloned().collect()
    }

    /// All files with their contents.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock();
        state.names.iter().map(|(name, file)| (name.clone(), file.lock().cache.clone())).collect()
    }

    /// Content of a file, to be looked at and spoilt.
    pub fn content(&self, name: &str) -> Vec<u8> {
        self.state.lock().names[name].lock().cache.clone()
    }

    /// Replaces a file's content, durably.
    pub fn replace(&self, name: &str, bytes: &[u8]) {
        let state = self.state.lock();
        let mut content = state.names[name].lock();
        content.cache = bytes.to_vec();
        content.disk = bytes.to_vec();
        content.dirty.clear();
    }

    /// Takes a file away, durably.
    pub fn lose(&self, name: &str) {
        let mut state = self.state.lock();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    /// A directory with the same content and no history.
    pub fn copy(&self) -> SimDirectory {
        let copy = SimDirectory::new(0);
        for (name, content) in &self.state.lock().names {
            let bytes = content.lock().cache.clone();
            let content = Content { cache: bytes.clone(), disk: bytes, dirty: BTreeSet::new() };
            let content = Arc::new(Mutex::new(content));
            let mut state = copy.state.lock();
            state.names.insert(name.clone(), Arc::clone(&content));
            state.durable_names.insert(name.clone(), content);
        }
        copy
    }

    fn file(&self, content: Arc<Mutex<Content>>) -> Arc<dyn LogFile> {
        Arc::new(SimFile { state: Arc::clone(&self.state), content })
    }
}

impl LogDirectory for SimDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let own = state.names.keys().filter_map(|name| name.strip_prefix(&self.prefix));
        Ok(own.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut state = self.state.lock();
        let fails = state.step()?;
        if state.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.names.contains_key(&self.full_name(name)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Arc::new(Mutex::new(Content::default()));
        state.names.insert(self.full_name(name), Arc::clone(&content));
        if fails { Err(failed()) } else { Ok(self.file(content)) }
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let state = self.state.lock();
        match state.names.get(&self.full_name(name)) {
            Some(content) => Ok(self.file(Arc::clone(content))),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let fails = state.step()?;
        let removed = state.names.remove(&self.full_name(name));
        match removed {
            _ if fails => Err(failed()),
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.step()? {
            return Err(failed());
        }
        let is_own = |name: &String| name.starts_with(&self.prefix);
        state.durable_names.retain(|name, _| !is_own(name));
        let now = state.names.iter().filter(|(name, _)| is_own(name));
        let now: Vec<_> = now.map(|(name, file)| (name.clone(), Arc::clone(file))).collect();
        state.durable_names.extend(now);
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.state.lock().free_bytes
    }

    fn new_seed(&self) -> u64 {
        self.state.lock().random.number()
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    content: Arc<Mutex<Content>>,
}

impl SimFile {
    fn check_blocks(&self, blocks: &[u8], offset: u64) {
        let block_bytes = self.block_bytes();
        let is_aligned = |number: usize| number.is_multiple_of(block_bytes);
        assert!(is_aligned(blocks.len()) && is_aligned(offset as usize), "only whole blocks");
        assert!(is_aligned(blocks.as_ptr().addr()), "the memory of blocks is aligned");
    }
}

impl LogFile for SimFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.content.lock().cache.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.state.lock().is_off {
            return Err(failed());
        }
        let content = self.content.lock();
        let rest = content.cache.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        drop(content);
        let reads = &mut self.state.lock().reads;
        *reads = (reads.0 + 1, reads.1 + length as u64);
        Ok(length)
    }

    fn block_bytes(&self) -> usize {
        self.state.lock().block_bytes
    }

    fn read_blocks(&self, blocks: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_blocks(blocks, offset);
        self.read_at(blocks, offset)
    }

    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        self.check_blocks(blocks, offset);
        self.write_at(blocks, offset)
    }

    fn rest(&self) {}

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let fails = state.step()?;
        let mut content = self.content.lock();
        let grows = offset as usize + bytes.len() > content.cache.len();
        if fails || (state.is_full && grows) {
            let part = state.random.below(bytes.len() as u64 + 1) as usize;
            content.write(&bytes[..part], offset as usize);
            let is_full = state.is_full;
            return Err(if is_full { io::ErrorKind::StorageFull.into() } else { failed() });
        }
        content.write(bytes, offset as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let fails = state.step()?;
        let mut content = self.content.lock();
        if !fails {
            content.sync();
            return Ok(());
        }
        if !state.is_off {
            // Nothing or some of it was written, and the rest still reads as if it were.
            let written_of = [0, 2][state.random.below(2) as usize];
            for sector in std::mem::take(&mut content.dirty) {
                if state.random.below(4) < written_of {
                    content.write_back(sector);
                }
            }
        }
        Err(failed())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.step()? {
            return Err(failed());
        }
        let mut content = self.content.lock();
        content.cache.truncate(bytes as usize);
        let sectors = (bytes as usize).div_ceil(SECTOR_BYTES);
        content.dirty.retain(|sector| *sector < sectors);
        Ok(())
    }
}
