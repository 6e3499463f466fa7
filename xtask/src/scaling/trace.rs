//! Which cache lines an operation shares with another worker's.
//!
//! Owns: a trace of every load and store of two workers that serve batches in turn (valgrind's tool
//! `lackey`), and what becomes of it. A line is shared when both workers touch it and at least one
//! writes it. Nothing in the server is instrumented, so no shared line is forgotten; what the
//! kernel shares is not seen.
//!
//! Accesses of one line that follow each other closely are one *visit*: while a worker is alone
//! with a line for so short, it pays for it once. A lock is a shared byte that a worker writes
//! twice in a visit: the first write takes it, the second releases it. Visits to other shared lines
//! in between are paid for by whoever waits for the lock as well.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Bytes of a cache line, as a power of two.
const LINE_SHIFT: u32 = 6;
/// Accesses further apart than this are two visits: less than an operation has.
const VISIT_INSTRUCTIONS: u64 = 400;
/// Batches of each worker that only warm up.
const WARM_UP_BATCHES: usize = 2;
const WORKERS: usize = 2;
/// What is used of a worker's stack at most, below the address that it says and above it.
const STACK_BYTES: (u64, u64) = (1 << 20, 1 << 10);

/// One access in a worker's batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Access {
    /// Instructions of this worker before it.
    at: u64,
    address: u64,
    bytes: u8,
    is_write: bool,
}

/// How often an operation visits one shared line outside of locks, on average.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct SharedLine {
    /// Visits that write.
    pub writes: f64,
    /// Visits that only read.
    pub reads: f64,
}

/// How an operation uses one lock, on average.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct SharedLock {
    /// Times that it is taken.
    pub taken: f64,
    /// Share of the operation's instructions under it.
    pub held_share: f64,
    /// Visits to other shared lines under it.
    pub lines_under: f64,
}

/// All shared lines of an operation.
#[derive(Clone, Default, Debug)]
pub struct Lines {
    pub lines: Vec<SharedLine>,
    pub locks: Vec<SharedLock>,
    /// Visits under locks that write.
    pub written_under: f64,
}

impl Lines {
    /// Shared lines that an operation writes, each visit counted.
    pub fn written(&self) -> f64 {
        let locks: f64 = self.locks.iter().map(|lock| lock.taken).sum();
        self.lines.iter().map(|line| line.writes).sum::<f64>() + locks + self.written_under
    }

    /// Shared lines that an operation only reads, each visit counted.
    pub fn read(&self) -> f64 {
        let under: f64 = self.locks.iter().map(|lock| lock.lines_under).sum();
        self.lines.iter().map(|line| line.reads).sum::<f64>() + under - self.written_under
    }

    /// Share of an operation's instructions under a lock.
    pub fn held_share(&self) -> f64 {
        self.locks.iter().map(|lock| lock.held_share).sum()
    }
}

/// Traces the bench with these arguments; its batches have `batch` operations.
pub fn trace(program: &Path, arguments: &[String], batch: u32) -> Result<Lines> {
    let mut tool = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "--log-fd=1"])
        .arg(program)
        .args(arguments)
        .arg("--turns")
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("valgrind")?;
    let output = tool.stdout.take().context("valgrind's output")?;
    let batches = batches_of(BufReader::with_capacity(1 << 20, output));
    ensure!(tool.wait()?.success(), "the traced bench failed");
    lines_of(&batches?, batch)
}

/// The accesses of each worker, batch by batch, without those that warm up.
fn batches_of(output: impl BufRead) -> Result<[Vec<Vec<Access>>; WORKERS]> {
    let mut marks = None;
    let mut stacks = [None; WORKERS];
    let mut batches: [Vec<Vec<Access>>; WORKERS] = Default::default();
    let mut instructions = [0_u64; WORKERS];
    let mut serving = None;
    for line in output.lines() {
        let line = line.context("valgrind's output")?;
        if let Some(address) = line.strip_prefix("marks 0x") {
            marks = Some(u64::from_str_radix(address, 16).context("the address of the marks")?);
            continue;
        }
        if let Some((worker, address)) = stack(&line) {
            stacks[worker] = Some(address);
            continue;
        }
        let Some((kind, address, bytes)) = access(&line) else { continue };
        let mark = marks.map(|marks| address.wrapping_sub(marks) / 8);
        match (mark, serving) {
            (Some(mark @ 0..4), _) if kind != 'I' && kind != 'L' => {
                let (worker, is_end) = (mark as usize / 2, mark % 2 == 1);
                serving = (!is_end).then_some(worker);
                if !is_end {
                    batches[worker].push(Vec::new());
                }
            }
            (_, Some(worker)) if kind == 'I' => instructions[worker] += 1,
            // On a stack nothing is shared. The other worker may still be on its way to where it
            // waits, and what it does there would be taken for this one's.
            (_, Some(_)) if stacks.iter().any(|stack| is_on(*stack, address)) => {}
            (_, Some(worker)) => {
                if let Some(batch) = batches[worker].last_mut() {
                    let is_write = kind != 'L';
                    batch.push(Access { at: instructions[worker], address, bytes, is_write });
                }
            }
            _ => {}
        }
    }
    ensure!(marks.is_some(), "the bench did not say where its marks are");
    ensure!(stacks.iter().all(Option::is_some), "a worker did not say where its stack is");
    for of_worker in &mut batches {
        ensure!(of_worker.len() > WARM_UP_BATCHES, "{} batches were traced", of_worker.len());
        of_worker.drain(..WARM_UP_BATCHES);
    }
    Ok(batches)
}

/// The worker and an address of its stack, of a line like `stack 0 0x1ffefffe38`.
fn stack(line: &str) -> Option<(usize, u64)> {
    let (worker, address) = line.strip_prefix("stack ")?.split_once(" 0x")?;
    let worker = worker.parse().ok().filter(|worker| *worker < WORKERS)?;
    Some((worker, u64::from_str_radix(address, 16).ok()?))
}

fn is_on(stack: Option<u64>, address: u64) -> bool {
    let (below, above) = STACK_BYTES;
    stack.is_some_and(|stack| (stack.saturating_sub(below)..stack + above).contains(&address))
}

/// Kind, address and length of a line like ` S 1ffefffe38,8`.
fn access(line: &str) -> Option<(char, u64, u8)> {
    let kind = line.trim_start().chars().next().filter(|kind| "ILSM".contains(*kind))?;
    let (address, bytes) = line.get(3..)?.split_once(',')?;
    Some((kind, u64::from_str_radix(address.trim(), 16).ok()?, bytes.parse().ok()?))
}

/// A worker's stay with one line.
struct Visit {
    worker: usize,
    line: u64,
    begin: u64,
    end: u64,
    is_write: bool,
    /// The byte that is written first and last, if that is the same one.
    locked: Option<u64>,
}

fn lines_of(batches: &[Vec<Vec<Access>>; WORKERS], batch: u32) -> Result<Lines> {
    let shared = shared_lines(batches);
    let operations = batches.iter().map(Vec::len).sum::<usize>() as f64 * f64::from(batch);
    let instructions: u64 = batches.iter().map(|of_worker| length_of(of_worker)).sum();
    ensure!(instructions > 0, "nothing was traced");
    let mut visits: Vec<Visit> = Vec::new();
    for (worker, of_worker) in batches.iter().enumerate() {
        visits.extend(visits_of(worker, of_worker.iter().flatten(), &shared));
    }
    visits.sort_by_key(|visit| (visit.worker, visit.begin));
    let mut lines: HashMap<u64, SharedLine> = HashMap::new();
    let mut locks: HashMap<u64, SharedLock> = HashMap::new();
    let mut written_under = 0.0;
    let mut held: Option<&Visit> = None;
    for visit in &visits {
        held = held.filter(|held| held.worker == visit.worker && visit.begin < held.end);
        match (held, visit.locked) {
            (Some(held), _) => {
                let lock = locks.entry(held.line).or_default();
                lock.lines_under += 1.0 / operations;
                written_under += f64::from(u8::from(visit.is_write)) / operations;
            }
            (None, Some(_)) => {
                let lock = locks.entry(visit.line).or_default();
                lock.taken += 1.0 / operations;
                lock.held_share += (visit.end - visit.begin) as f64 / instructions as f64;
                held = Some(visit);
            }
            (None, None) => {
                let line = lines.entry(visit.line).or_default();
                let kind = if visit.is_write { &mut line.writes } else { &mut line.reads };
                *kind += 1.0 / operations;
            }
        }
    }
    let lines = lines.into_values().collect();
    Ok(Lines { lines, locks: locks.into_values().collect(), written_under })
}

/// Instructions of a worker from its first access to its last.
fn length_of(batches: &[Vec<Access>]) -> u64 {
    let first = batches.iter().flatten().next().map_or(0, |access| access.at);
    batches.iter().flatten().next_back().map_or(0, |access| access.at - first)
}

/// Lines that both workers touch and one writes.
fn shared_lines(batches: &[Vec<Vec<Access>>; WORKERS]) -> HashMap<u64, ()> {
    let mut touched: HashMap<u64, (u8, bool)> = HashMap::new();
    for (worker, of_worker) in batches.iter().enumerate() {
        for access in of_worker.iter().flatten() {
            let (by, is_written) = touched.entry(access.address >> LINE_SHIFT).or_default();
            *by |= 1 << worker;
            *is_written |= access.is_write;
        }
    }
    let all = (1 << WORKERS) - 1;
    touched.retain(|_, (by, is_written)| *by == all && *is_written);
    touched.into_keys().map(|line| (line, ())).collect()
}

/// The visits of one worker to shared lines.
fn visits_of<'a>(
    worker: usize,
    accesses: impl Iterator<Item = &'a Access>,
    shared: &HashMap<u64, ()>,
) -> Vec<Visit> {
    let mut open: HashMap<u64, (Visit, Option<u64>, usize)> = HashMap::new();
    let mut visits = Vec::new();
    for access in accesses {
        let line = access.address >> LINE_SHIFT;
        if !shared.contains_key(&line) {
            continue;
        }
        let is_over =
            open.get(&line).is_some_and(|(visit, ..)| access.at - visit.end > VISIT_INSTRUCTIONS);
        if is_over {
            visits.extend(open.remove(&line).map(|(visit, ..)| visit));
        }
        let (visit, first_byte, writes) = open.entry(line).or_insert_with(|| {
            let (begin, end) = (access.at, access.at);
            (Visit { worker, line, begin, end, is_write: false, locked: None }, None, 0)
        });
        visit.end = access.at;
        if access.is_write {
            visit.is_write = true;
            *writes += 1;
            let byte = (access.bytes == 1).then_some(access.address);
            if *writes == 1 {
                *first_byte = byte;
            }
            visit.locked = byte.filter(|_| *writes >= 2 && *first_byte == byte);
        }
    }
    visits.extend(open.into_values().map(|(visit, ..)| visit));
    visits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the tool prints for two workers: each begins, does `body`, and ends.
    fn traced(body: [&str; WORKERS]) -> Lines {
        let mut text = String::from("==1== Lackey\nmarks 0x1000\nI  400000,3\n S 9000,8\n");
        text += "stack 1 0xf00000\n\nstack 0 0x700000\n";
        for _ in 0..WARM_UP_BATCHES + 1 {
            for (worker, body) in body.iter().enumerate() {
                let begin = 0x1000 + worker * 16;
                text += &format!(" S {begin:x},8\n{body} S {:x},8\n", begin + 8);
            }
        }
        let batches = batches_of(text.as_bytes()).expect("it is a trace");
        lines_of(&batches, 1).expect("it has batches")
    }

    #[test]
    fn lines_that_one_worker_touches_or_nobody_writes_are_not_shared() {
        let found = traced([
            "I  1,3\n S 2000,8\n L 3000,8\nI  1,3\n L 3000,8\n",
            "I  1,3\n S 2040,8\nI  1,3\n L 3000,8\n",
        ]);
        assert_eq!((found.written(), found.read()), (0.0, 0.0));
    }

    #[test]
    fn a_line_that_one_writes_and_the_other_reads_is_shared() {
        let found = traced([
            "I  1,3\n S 2000,8\nI  1,3\n M 2008,8\n",
            "I  1,3\n L 2010,8\nI  1,3\n L 5000,8\n",
        ]);
        // Two operations: one writes it, in one visit, and one reads it.
        assert_eq!((found.written(), found.read()), (0.5, 0.5));
        assert!(found.locks.is_empty());
    }

    #[test]
    fn what_is_on_a_stack_is_not_shared() {
        let found = traced([
            "I  1,3\n L 4000,8\nI  1,3\n S 6ffff0,8\nI  1,3\n S effff0,8\nI  1,3\n L 4000,8\n",
            "I  1,3\n L 5000,8\nI  1,3\n S effff0,8\nI  1,3\n L 6ffff0,8\n",
        ]);
        assert_eq!((found.written(), found.read()), (0.0, 0.0));
    }

    #[test]
    fn a_byte_that_is_written_twice_is_a_lock_and_what_is_touched_meanwhile_is_under_it() {
        let body = "I  1,3\n M 2000,1\nI  1,3\nI  1,3\n S 3000,8\nI  1,3\n S 2000,1\nI  1,3\nI  1,3\n S 4000,8\n";
        let found = traced([body, body]);
        assert_eq!((found.locks.len(), found.lines.len()), (1, 1));
        let lock = found.locks[0];
        assert_eq!((lock.taken, lock.lines_under), (1.0, 1.0));
        assert_eq!(found.written(), 3.0);
        assert!(lock.held_share > 0.5, "{lock:?}");
    }
}
