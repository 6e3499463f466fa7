//! A running server: its query service, over the admin HTTP.
//!
//! Owns: the runtime, and the interruption by Ctrl-C. Invariants: every wait ends when the
//! statement is interrupted; the connection is closed then, which ends the statement on the server.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::StatusCode;
use serde_json::{Map, Value};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::response::ResponseReader;
use super::source::{QuerySource, ResultSink, Summary};
use crate::admin::{Admin, AdminArgs};
use crate::target::Target;

/// The service's path on the admin HTTP, where every server has it.
const PATH: &str = "/query/service";

/// See the module text.
pub struct ServerSource {
    runtime: Runtime,
    admin: Admin,
    interrupted: watch::Sender<bool>,
}

impl ServerSource {
    /// Finds the server's admin HTTP.
    ///
    /// # Errors
    /// When the server does not answer or rejects the user.
    pub fn connect(args: &AdminArgs, target: &Target) -> Result<Arc<ServerSource>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("starting the event loop")?;
        let admin = runtime.block_on(Admin::find_without_bucket(args, target))?;
        Ok(Arc::new(ServerSource { runtime, admin, interrupted: watch::Sender::new(false) }))
    }

    async fn answer(
        &self,
        request: &Map<String, Value>,
        sink: &mut dyn ResultSink,
    ) -> Result<Summary> {
        let body = serde_json::to_vec(request).context("the request")?;
        let answer = self.admin.post_json(PATH, body).await?;
        let status = answer.status();
        let mut reader = ResponseReader::default();
        if !status.is_success() {
            let bytes = Admin::whole(answer).await?;
            let is_answer = serde_json::from_slice::<Value>(&bytes)
                .is_ok_and(|answer| answer.get("requestID").is_some());
            if !is_answer {
                bail!(match status {
                    StatusCode::NOT_FOUND => anyhow::anyhow!("this server has no query service"),
                    _ => self.admin.refusal(status, &bytes),
                });
            }
            reader.push(&bytes, sink)?;
            return reader.finish();
        }
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the connection was lost in mid-answer")?;
            if let Some(bytes) = frame.data_ref() {
                reader.push(bytes, sink)?;
            }
            // Frames that are always ready leave no turn to the interruption.
            if self.is_interrupted() {
                bail!("interrupted");
            }
        }
        reader.finish()
    }
}

impl QuerySource for ServerSource {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn run(&self, request: &Map<String, Value>, sink: &mut dyn ResultSink) -> Result<Summary> {
        let mut interrupted = self.interrupted.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                _ = interrupted.wait_for(|interrupted| *interrupted) => bail!("interrupted"),
                outcome = self.answer(request, sink) => outcome,
            }
        })
    }

    fn interrupt(&self) {
        self.interrupted.send_replace(true);
    }

    fn is_interrupted(&self) -> bool {
        *self.interrupted.borrow()
    }

    fn begin_statement(&self) {
        self.interrupted.send_replace(false);
    }

    fn cost(&self) -> Option<String> {
        None
    }
}
