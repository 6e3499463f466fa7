//! The installation of Kudu's programs, and how to run one of them.
//!
//! Owns the meaning of `ORIBI_KUDU_HOME` and `ORIBI_KUDU_REQUIRED`. The directory is an unpacked
//! `kudu-binary` artifact: `bin/` with the programs, `lib/` with every library they load and
//! `lib/sasl2/` with the authentication plug-ins. None of these libraries are in the system's
//! search path.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::skip::skip;

const HOME: &str = "ORIBI_KUDU_HOME";
const REQUIRED: &str = "ORIBI_KUDU_REQUIRED";

/// An unpacked `kudu-binary` artifact.
#[derive(Clone, Debug)]
pub(super) struct Installation {
    home: PathBuf,
}

impl Installation {
    /// The installation that the environment names.
    pub(super) fn from_environment() -> Result<Installation> {
        let Some(home) = env::var_os(HOME).filter(|home| !home.is_empty()) else {
            bail!("{HOME} is not set; tests/kudu/fetch prints what to set it to");
        };
        let home = PathBuf::from(home);
        for program in ["kudu", "kudu-master", "kudu-tserver"] {
            let path = home.join("bin").join(program);
            if !path.is_file() {
                bail!("{HOME} is {}, but {} does not exist", home.display(), path.display());
            }
        }
        Ok(Installation { home })
    }

    /// The installation, or `None` after reporting that the test is skipped.
    ///
    /// # Panics
    /// When there is none although the environment requires it, or names one that is incomplete.
    pub(super) fn for_test() -> Option<Installation> {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        match Installation::from_environment() {
            Ok(installation) => Some(installation),
            Err(error) if is_set(HOME) => panic!("{error}"),
            Err(_) => {
                skip(REQUIRED, "Kudu", "tests/kudu/fetch prints what to set ORIBI_KUDU_HOME to");
                None
            }
        }
    }

    /// One of the programs, with the environment that lets it find its libraries.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let library = self.home.join("lib");
        let mut command = Command::new(self.home.join("bin").join(program.as_ref()));
        command.env("SASL_PATH", library.join("sasl2")).env("LD_LIBRARY_PATH", library);
        command
    }
}
