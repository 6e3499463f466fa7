//! The operations that a spec may name, and the arguments of each: paths, operands, flags.

use oribi_protocol::opcode::Opcode;
use oribi_subdoc::Mutation;

/// The operation at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Get,
    /// Check whether the path exists.
    Exists,
    /// Count the members of its value.
    Count,
    /// Read the whole body.
    GetBody,
    Edit(Mutation),
    /// Replace the whole body.
    SetBody,
    DeleteDocument,
    /// Replace the body by the value at a path in the attributes.
    ReplaceBodyWithXattr,
}

impl Action {
    pub(super) fn of_lookup(opcode: u8) -> Option<Action> {
        Some(match Opcode::from_u8(opcode)? {
            Opcode::SubdocGet => Action::Get,
            Opcode::SubdocExists => Action::Exists,
            Opcode::SubdocGetCount => Action::Count,
            Opcode::Get => Action::GetBody,
            _ => return None,
        })
    }

    pub(super) fn of_mutation(opcode: u8) -> Option<Action> {
        let mutation = match Opcode::from_u8(opcode)? {
            Opcode::SubdocDictAdd => Mutation::DictAdd,
            Opcode::SubdocDictUpsert => Mutation::DictUpsert,
            Opcode::SubdocDelete => Mutation::Delete,
            Opcode::SubdocReplace => Mutation::Replace,
            Opcode::SubdocArrayPushLast => Mutation::ArrayPushLast,
            Opcode::SubdocArrayPushFirst => Mutation::ArrayPushFirst,
            Opcode::SubdocArrayInsert => Mutation::ArrayInsert,
            Opcode::SubdocArrayAddUnique => Mutation::ArrayAddUnique,
            Opcode::SubdocCounter => Mutation::Counter,
            Opcode::Set => return Some(Action::SetBody),
            Opcode::Delete => return Some(Action::DeleteDocument),
            Opcode::SubdocReplaceBodyWithXattr => return Some(Action::ReplaceBodyWithXattr),
            _ => return None,
        };
        Some(Action::Edit(mutation))
    }

    /// True for an operation on the document as a whole, which takes no path.
    pub(super) const fn is_of_document(self) -> bool {
        matches!(self, Action::GetBody | Action::SetBody | Action::DeleteDocument)
    }

    pub(super) const fn takes_empty_path(self) -> bool {
        match self {
            Action::Count => true,
            Action::Edit(mutation) => mutation.takes_root(),
            action => action.is_of_document(),
        }
    }

    pub(super) const fn makes_parents(self) -> bool {
        matches!(self, Action::Edit(mutation) if mutation.makes_parents())
    }

    /// True if the operand or the result may be bytes instead of JSON.
    pub(super) const fn may_be_binary(self) -> bool {
        match self {
            Action::Get | Action::ReplaceBodyWithXattr => true,
            Action::Edit(mutation) => !matches!(mutation, Mutation::Delete | Mutation::Counter),
            _ => false,
        }
    }

    /// True for mutations that reveal the value at their path.
    pub(super) const fn tells(self) -> bool {
        matches!(self, Action::Edit(Mutation::Counter) | Action::ReplaceBodyWithXattr)
    }

    /// True if the operand may be a macro.
    pub(super) const fn takes_macros(self) -> bool {
        match self {
            Action::Edit(mutation) => {
                !matches!(mutation, Mutation::Delete | Mutation::Counter | Mutation::ArrayAddUnique)
            }
            _ => false,
        }
    }

    pub(super) const fn takes_operand(self) -> bool {
        match self {
            Action::SetBody => true,
            Action::Edit(mutation) => !matches!(mutation, Mutation::Delete),
            _ => false,
        }
    }
}
