//! The client against a real Kudu, one test program because linking is what costs. Without Kudu
//! these tests print `SKIPPED` and pass.

mod faults;
mod guide;
mod scan;
mod scan_faults;
mod tables;
mod writes;
