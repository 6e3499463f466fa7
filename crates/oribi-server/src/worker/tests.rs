//! A worker over real sockets on loopback.
