//! Panics that tests plant in a running server, to prove what follows from each.
//!
//! Owns: the switch. In debug builds `ORIBI_PLANTED_PANIC=PLACE:FILE` makes the place of that name
//! panic while the file exists. In a release build there is none: the call is empty.

/// Panics if a test has planted that here.
#[inline(always)]
pub fn plant(place: &str) {
    if cfg!(debug_assertions) {
        debug::plant(place);
    }
}

mod debug {
    use std::path::PathBuf;
    use std::sync::OnceLock;

    /// Where, and the file.
    static PLANTED: OnceLock<Option<(String, PathBuf)>> = OnceLock::new();

    pub(super) fn plant(place: &str) {
        let planted = PLANTED.get_or_init(|| {
            let planted = std::env::var("ORIBI_PLANTED_PANIC").ok()?;
            let (place, file) = planted.split_once(':')?;
            Some((place.to_owned(), PathBuf::from(file)))
        });
        if let Some((wanted, file)) = planted
            && wanted == place
            && file.exists()
        {
            panic!("planted in {place}");
        }
    }
}
