//! The log store: conformance, trouble at every step, damage, its parts.

mod conformance;
mod crash;
mod damage;
mod directory;
mod driver;
mod packing;
mod parts;
mod salvage;
mod scans;
mod several;
mod snapshot;
mod space;
mod versions;
