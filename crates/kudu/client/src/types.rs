//! Small value types that several parts of the client share and users see.
//!
//! Each type has its own file; this module only names them.

mod host_port;

pub use host_port::{HostPort, HostPortError};
