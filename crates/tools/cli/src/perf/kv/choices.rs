//! Writes down the operations of a load without running it, to compare a server with a model of it.
//!
//! Choices are a function of the options, so the sequence of operations of a run with
//! `--no-population` needs no server. The module owns the form of the file: 8 bytes per operation,
//! little-endian, twice the number of the document, plus one for a write. Operations of several
//! workers alternate by batch, as if all were equally fast.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};

use super::operation::{OperationGenerator, OperationKind, OperationSource};
use super::options::KvArgs;
use crate::perf::key_choice::{KeyChoice, generator, share};

/// Writes the operations of the load to a file.
pub fn write(args: &KvArgs, path: &Path) -> anyhow::Result<()> {
    let Some(each) = args.operations_per_worker() else {
        bail!("--choices needs --num-cycles, because a load without end has no end of choices");
    };
    let file = File::create(path)
        .with_context(|| format!("--choices: cannot create {}", path.display()))?;
    let mut out = BufWriter::new(file);
    write_turns(args, each, &mut out)
        .and_then(|()| out.flush())
        .with_context(|| format!("cannot write {}", path.display()))
}

fn write_turns(args: &KvArgs, each: u64, out: &mut impl Write) -> std::io::Result<()> {
    let mut workers: Vec<OperationGenerator> =
        (0..args.workers()).map(|number| operations_of(args, number)).collect();
    for _ in 0..each / u64::from(args.batch_size) {
        for operations in &mut workers {
            for operation in (0..args.batch_size).map_while(|_| operations.next(0)) {
                let is_write = u64::from(operation.kind == OperationKind::Set);
                out.write_all(&(operation.index << 1 | is_write).to_le_bytes())?;
            }
        }
    }
    Ok(())
}

/// The same operations as those of the worker with this number.
fn operations_of(args: &KvArgs, number: usize) -> OperationGenerator {
    let mine = share(args.items, number, args.workers());
    let mine = if mine.is_empty() { 0..args.items } else { mine };
    let choice = KeyChoice::new(args.popularity(), args.items, mine);
    OperationGenerator {
        source: OperationSource::Mixed { choice, set_pct: args.set_pct },
        // Limited to far less than this type holds.
        collections: args.collections().len() as u16,
        sizes: args.min_size as usize..=args.max_size as usize,
        random: generator(args.random_seed, number),
        versions: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::kv::options::tests::parse;

    fn choices(arguments: &[&str]) -> Vec<u64> {
        let args = parse(arguments).unwrap();
        let mut bytes = Vec::new();
        write_turns(&args, args.operations_per_worker().unwrap(), &mut bytes).unwrap();
        let (operations, rest) = bytes.as_chunks();
        assert!(rest.is_empty());
        operations.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn workers_take_turns_and_draw_what_they_draw_alone() {
        let zipf = ["--distribution", "zipf", "-I", "100", "-B", "5", "-c", "40", "-r", "50"];
        let one = choices(&zipf);
        assert_eq!(one.len(), 200);
        assert!(one.iter().all(|operation| operation >> 1 < 100));
        assert!(one.iter().any(|operation| operation & 1 == 1));
        let two = choices(&[&zipf[..], &["--connections-per-thread", "2"]].concat());
        assert_eq!(two.len(), 400);
        let first: Vec<u64> = two.chunks(10).flat_map(|turn| turn[..5].to_vec()).collect();
        assert_eq!(first, one);
    }
}
