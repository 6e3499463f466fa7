//! SIGHUP: reads certificates and configuration again.
//!
//! Owns: the order and the lines of the log. Invariant: a configuration that cannot be used, or a
//! value that a bucket cannot have, changes nothing.

use clap::ArgMatches;
use oribi_config::ResolvedSettings;
use oribi_server::Server;
use oribi_server::bucket_settings::{self, SettingsReload};

use super::logging::{self, FilterHandle};
use crate::config::resolve_here;

/// The configuration in force, and what a reload needs.
pub struct Reloader<'a> {
    pub matches: &'a ArgMatches,
    pub in_force: ResolvedSettings,
    pub filter: FilterHandle,
}

impl Reloader<'_> {
    /// Reloads certificates and configuration, and says what changed.
    pub fn reload(&mut self, server: &Server) {
        if let Some(tls) = server.context().access.tls.as_ref() {
            // If they are not used, the log says why.
            drop(tls.reload());
        }
        match self.reload_settings(server) {
            Ok(reloaded) => say(&reloaded),
            Err(error) => tracing::error!(
                error = format!("{error:#}"),
                "the configuration was not reloaded, and nothing changed"
            ),
        }
    }

    fn reload_settings(&mut self, server: &Server) -> anyhow::Result<SettingsReload> {
        let next = resolve_here(self.matches)?;
        let filter = logging::filter(&next.settings.log)?;
        let buckets = &server.context().buckets;
        let reloaded = bucket_settings::reload(&mut self.in_force, &next, buckets)?;
        if reloaded.applied.iter().any(|changed| changed.name == "log") {
            self.filter.reload(filter)?;
        }
        Ok(reloaded)
    }
}

fn say(reloaded: &SettingsReload) {
    for changed in &reloaded.applied {
        let (before, after) = (&changed.before, &changed.after);
        tracing::info!(setting = changed.name, before, after, "a setting changed");
    }
    for changed in &reloaded.needs_restart {
        let (in_force, given) = (&changed.before, &changed.after);
        tracing::warn!(setting = changed.name, in_force, given, "a setting needs a restart");
    }
    let (applied, waiting) = (reloaded.applied.len(), reloaded.needs_restart.len());
    tracing::info!(applied, needs_restart = waiting, "the configuration was reloaded");
}
