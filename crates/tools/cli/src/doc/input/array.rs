//! Splits a JSON array into its elements without parsing them: brackets, strings and escapes are
//! enough to find where an element ends. A reader of elements checks them.

use anyhow::bail;

/// Where the splitter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the bracket of the array.
    Outside,
    First,
    Between,
    Next,
    /// In an element that has brackets.
    Nested,
    /// In a string, of an element with brackets or one that is the element.
    Text,
    /// After a backslash in a string.
    Escape,
    /// In an element without brackets or quotes.
    Bare,
    Behind,
}

/// Result of a splitter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayStep {
    /// It needs more bytes.
    More,
    /// An element ends here.
    Element,
    /// The input ends here.
    End,
}

/// Finds one element; made anew for the next.
pub struct Splitter {
    state: State,
    depth: usize,
    taken: usize,
    lines: u64,
    begin: usize,
}

impl Splitter {
    /// Begins before the array, or after one of its elements.
    pub fn new(is_at_start: bool) -> Splitter {
        let state = if is_at_start { State::Outside } else { State::Between };
        Splitter { state, depth: 0, taken: 0, lines: 0, begin: 0 }
    }

    /// Where the element begins, counted from the first byte that this splitter took.
    pub fn begin(&self) -> usize {
        self.begin
    }

    /// Line ends in everything that it took.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Takes bytes and says how many; no bytes are the end of the input.
    pub fn take(&mut self, bytes: &[u8]) -> anyhow::Result<(ArrayStep, usize)> {
        if bytes.is_empty() {
            match self.state {
                State::Behind => return Ok((ArrayStep::End, 0)),
                _ => bail!("the array has no end"),
            }
        }
        for (at, byte) in bytes.iter().enumerate() {
            if self.state == State::Bare && ends_bare(*byte) {
                return Ok((ArrayStep::Element, at));
            }
            let is_element = self.push(*byte)?;
            self.taken += 1;
            self.lines += u64::from(*byte == b'\n');
            if is_element {
                return Ok((ArrayStep::Element, at + 1));
            }
        }
        Ok((ArrayStep::More, bytes.len()))
    }

    /// True when an element ends with this byte.
    fn push(&mut self, byte: u8) -> anyhow::Result<bool> {
        match (self.state, byte) {
            (State::Escape, _) => self.state = State::Text,
            (State::Text, b'\\') => self.state = State::Escape,
            (State::Text, b'"') if self.depth == 0 => return Ok(true),
            (State::Text, b'"') => self.state = State::Nested,
            (State::Text | State::Bare, _) => {}
            (State::Nested, b'"') => self.state = State::Text,
            (State::Nested, b'{' | b'[') => self.depth += 1,
            (State::Nested, b'}' | b']') => {
                self.depth -= 1;
                return Ok(self.depth == 0);
            }
            (State::Nested, _) => {}
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (State::Outside, b'[') => self.state = State::First,
            (State::Outside, _) => bail!("an array begins with a bracket"),
            (State::First | State::Between, b']') => self.state = State::Behind,
            (State::Between, b',') => self.state = State::Next,
            (State::Between, _) => bail!("a comma or a bracket belongs behind an element"),
            (State::Behind, _) => bail!("there is more behind the array"),
            (State::First | State::Next, byte) => self.begin_element(byte)?,
        }
        Ok(false)
    }

    fn begin_element(&mut self, byte: u8) -> anyhow::Result<()> {
        self.begin = self.taken;
        self.state = match byte {
            b',' | b']' | b'}' => bail!("an element is missing"),
            b'{' | b'[' => {
                self.depth = 1;
                State::Nested
            }
            b'"' => State::Text,
            _ => State::Bare,
        };
        Ok(())
    }
}

fn ends_bare(byte: u8) -> bool {
    matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n')
}
