//! Figures for programs, written as they come: `--raw` and `--json`.
//!
//! Groups of ten million figures pass through here, so nothing is kept and nothing is allocated for
//! a figure: it is formatted from the receive buffer into the output's block. The exception is a
//! group that names figures twice (`collections` does), of which JSON shows the first and therefore
//! has to remember the names; such groups are short.

use std::collections::HashSet;

use oribi_client::{Connection, Stat};

use super::filter::StatFilter;
use super::output::StatsOutput;
use super::text::{push_clean, push_json_string, push_json_value};

/// Requests a group and passes each wanted figure to `each`.
pub async fn for_each(
    connection: &mut Connection,
    request: &str,
    filter: Option<&StatFilter>,
    mut each: impl FnMut(&Stat<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut stream = connection.stats(request).await?;
    let is_wanted = |stat: &Stat<'_>| filter.is_none_or(|filter| filter.matches(stat.name));
    while let Some(stat) = stream.next().await? {
        if is_wanted(&stat) {
            each(&stat)?;
        }
        while let Some(stat) = stream.try_next()? {
            if is_wanted(&stat) {
                each(&stat)?;
            }
        }
    }
    Ok(())
}

/// Lines of `name: value`, with the node before it when there are several.
#[derive(Debug)]
pub struct RawWriter {
    prefix: Vec<u8>,
}

impl RawWriter {
    /// Lines of `node`, if it has to be named.
    pub fn new(node: Option<&str>) -> RawWriter {
        let mut prefix = Vec::new();
        if let Some(node) = node {
            push_clean(&mut prefix, node.as_bytes());
            prefix.push(b' ');
        }
        RawWriter { prefix }
    }

    pub fn write(&self, out: &mut StatsOutput, stat: &Stat<'_>) -> anyhow::Result<()> {
        let block = &mut out.block;
        if !self.prefix.is_empty() {
            block.extend_from_slice(&self.prefix);
        }
        push_clean(block, stat.name);
        block.extend_from_slice(b": ");
        push_clean(block, stat.value);
        block.push(b'\n');
        Ok(out.spill()?)
    }
}

/// One JSON object of a group, a member a line.
#[derive(Debug)]
pub struct JsonWriter {
    is_empty: bool,
    /// Names so far, for groups that repeat some.
    seen: Option<HashSet<Box<[u8]>>>,
}

impl JsonWriter {
    pub fn begin(out: &mut StatsOutput, repeats_names: bool) -> JsonWriter {
        out.block.push(b'{');
        JsonWriter { is_empty: true, seen: repeats_names.then(HashSet::new) }
    }

    pub fn write(&mut self, out: &mut StatsOutput, stat: &Stat<'_>) -> anyhow::Result<()> {
        if let Some(seen) = &mut self.seen
            && !seen.insert(stat.name.into())
        {
            return Ok(());
        }
        let block = &mut out.block;
        block.extend_from_slice(if self.is_empty { b"\n" } else { b",\n" });
        self.is_empty = false;
        push_json_string(block, stat.name);
        block.push(b':');
        push_json_value(block, stat.value);
        Ok(out.spill()?)
    }

    pub fn end(self, out: &mut StatsOutput) {
        out.block.extend_from_slice(b"\n}");
    }
}

#[cfg(test)]
mod tests {
    //! The exact bytes of both forms.

    use std::io::{Read, Seek};

    use super::*;

    const STATS: &[(&str, &[u8])] = &[
        ("curr_items", b"17"),
        ("version", b"1.6.0"),
        ("0x0:0x8:name", b"a\x1bb"),
        ("0x0:0x8:name", b"again"),
        ("get_cmd", b"{\"total\":1}"),
        ("empty", b""),
    ];

    fn written(write: impl FnOnce(&mut StatsOutput)) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let mut out = StatsOutput::new(file.try_clone().unwrap());
        write(&mut out);
        out.flush().unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    fn stats() -> impl Iterator<Item = Stat<'static>> {
        STATS.iter().map(|(name, value)| Stat { name: name.as_bytes(), value })
    }

    #[test]
    fn raw_lines_are_name_and_value() {
        for (node, prefix) in [(None, ""), (Some("[::1]:11210"), "[::1]:11210 ")] {
            let text = written(|out| {
                let writer = RawWriter::new(node);
                stats().for_each(|stat| writer.write(out, &stat).unwrap());
            });
            let lines = [
                "curr_items: 17",
                "version: 1.6.0",
                "0x0:0x8:name: a\\x1bb",
                "0x0:0x8:name: again",
                "get_cmd: {\"total\":1}",
                "empty: ",
            ];
            let expected: String = lines.iter().map(|line| format!("{prefix}{line}\n")).collect();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn json_is_one_object() {
        let object = |repeats_names, stats: &mut dyn Iterator<Item = Stat<'static>>| {
            written(|out| {
                let mut writer = JsonWriter::begin(out, repeats_names);
                stats.for_each(|stat| writer.write(out, &stat).unwrap());
                writer.end(out);
            })
        };
        assert_eq!(
            object(true, &mut stats()),
            "{\n\"curr_items\":17,\n\"version\":\"1.6.0\",\n\"0x0:0x8:name\":\"a\\u001bb\",\n\
             \"get_cmd\":{\"total\":1},\n\"empty\":\"\"\n}"
        );
        assert_eq!(object(false, &mut stats()).matches("0x0:0x8:name").count(), 2);
        let nothing = object(false, &mut std::iter::empty());
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&nothing).unwrap(),
            serde_json::json!({})
        );
    }

    /// An answer longer than one block arrives whole and in order.
    #[test]
    fn blocks_are_written_as_they_fill() {
        let text = written(|out| {
            let writer = RawWriter::new(None);
            for number in 0..50_000 {
                let name = number.to_string();
                writer.write(out, &Stat { name: name.as_bytes(), value: b"x" }).unwrap();
            }
        });
        assert!(text.lines().enumerate().all(|(number, line)| line == format!("{number}: x")));
        assert_eq!(text.lines().count(), 50_000);
    }
}
