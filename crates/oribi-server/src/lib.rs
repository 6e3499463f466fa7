//! Listener, workers, connections, authentication, admin HTTP, configuration and metrics.

pub mod auth;
pub mod config;
pub mod data_dir;
