//! Where bare keyspace names belong.

/// The bucket and scope that bare keyspace names belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueryContext(pub Option<(String, String)>);
