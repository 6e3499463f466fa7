//! Which token may follow which, as a table: JSON's grammar but for its nesting.
//!
//! A token is known by its first byte. What follows a closing bracket depends on what stands around, which the
//! caller knows; the table says only that it may close.

/// What a byte begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Class {
    /// A number or a literal, or nothing that there is in JSON.
    Scalar,
    Text,
    Colon,
    Comma,
    OpenObject,
    OpenArray,
    CloseObject,
    CloseArray,
    Space,
}

/// What is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    /// The one value of a text.
    Only,
    /// Nothing any more.
    Done,
    /// A value of a list.
    Listed,
    /// A comma, or the end of the list.
    AfterListed,
    /// A member's key, or the end of the object.
    FirstKey,
    /// A member's key.
    Key,
    /// A colon.
    Colon,
    /// A member's value.
    Member,
    /// A comma, or the end of the object.
    AfterMember,
    /// An item, or the end of the array.
    FirstItem,
    /// An item.
    Item,
    /// A comma, or the end of the array.
    AfterItem,
    /// Not a state to be in: the container ends.
    Closed,
    /// The text is not JSON.
    Bad,
}

const CLASSES: usize = 9;
const STATES: usize = 16;

static CLASS: [Class; 256] = {
    let mut classes = [Class::Scalar; 256];
    classes[b'"' as usize] = Class::Text;
    classes[b':' as usize] = Class::Colon;
    classes[b',' as usize] = Class::Comma;
    classes[b'{' as usize] = Class::OpenObject;
    classes[b'[' as usize] = Class::OpenArray;
    classes[b'}' as usize] = Class::CloseObject;
    classes[b']' as usize] = Class::CloseArray;
    classes[b' ' as usize] = Class::Space;
    classes[b'\n' as usize] = Class::Space;
    classes[b'\r' as usize] = Class::Space;
    classes[b'\t' as usize] = Class::Space;
    classes
};

static AFTER: [[State; CLASSES]; STATES] = {
    let mut table = [[State::Bad; CLASSES]; STATES];
    let values = [
        (State::Only, State::Done),
        (State::Listed, State::AfterListed),
        (State::Member, State::AfterMember),
        (State::FirstItem, State::AfterItem),
        (State::Item, State::AfterItem),
    ];
    let mut at = 0;
    while at < values.len() {
        let (state, after) = values[at];
        let row = &mut table[state as usize];
        row[Class::Scalar as usize] = after;
        row[Class::Text as usize] = after;
        row[Class::OpenObject as usize] = State::FirstKey;
        row[Class::OpenArray as usize] = State::FirstItem;
        at += 1;
    }
    table[State::FirstKey as usize][Class::Text as usize] = State::Colon;
    table[State::Key as usize][Class::Text as usize] = State::Colon;
    table[State::Colon as usize][Class::Colon as usize] = State::Member;
    table[State::AfterMember as usize][Class::Comma as usize] = State::Key;
    table[State::AfterItem as usize][Class::Comma as usize] = State::Item;
    table[State::AfterListed as usize][Class::Comma as usize] = State::Listed;
    table[State::FirstKey as usize][Class::CloseObject as usize] = State::Closed;
    table[State::AfterMember as usize][Class::CloseObject as usize] = State::Closed;
    table[State::FirstItem as usize][Class::CloseArray as usize] = State::Closed;
    table[State::AfterItem as usize][Class::CloseArray as usize] = State::Closed;
    table
};

impl Class {
    #[inline]
    pub(super) fn of(byte: u8) -> Class {
        CLASS[usize::from(byte)]
    }

    /// True when the table says all about such a token.
    #[inline]
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Class::Text | Class::Colon | Class::Comma)
    }
}

impl State {
    /// The state after a token.
    #[inline]
    pub(super) fn after(self, class: Class) -> State {
        AFTER[self as usize][class as usize]
    }
}
