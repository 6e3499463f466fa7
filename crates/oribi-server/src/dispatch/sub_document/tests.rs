//! Sub-document requests over a whole connection.
