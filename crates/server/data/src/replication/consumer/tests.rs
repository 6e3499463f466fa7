//! A replica's bucket and an active one, joined by the consumer and the server's own frames; and
//! frames that no node sends.

mod hostile;
mod joined;
mod pair;
