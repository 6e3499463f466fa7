//! The server to administer.

use clap::Args;

use crate::admin::{Admin, AdminArgs};
use crate::target::{ServerTarget, Target};

/// Where the server and its admin HTTP are.
#[derive(Args, Clone, Debug)]
pub struct AdminPlace {
    #[command(flatten)]
    server: ServerTarget,
    #[command(flatten)]
    admin: AdminArgs,
}

impl AdminPlace {
    /// Finds the admin HTTP.
    pub async fn find(&self) -> anyhow::Result<Admin> {
        Admin::find_without_bucket(&self.admin, &Target::without_bucket(&self.server)).await
    }
}
