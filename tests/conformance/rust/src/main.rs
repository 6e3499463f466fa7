//! The conformance steps with the Couchbase Rust SDK.
//!
//! Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_CONTROL, ORIBI_STEPS,
//! ORIBI_SUB_DOCUMENTS, ORIBI_BUCKET and ORIBI_REPLICAS, and writes BEGIN, PASS and FAIL lines; see
//! harness/steps.py. This file owns the order of the steps, `checks` what a failed expectation is,
//! and `steps` what the steps do. The crate is outside of the workspace on purpose: nothing of
//! Oribi is used here, and the SDK's dependencies stay out of its lock file.

mod checks;
mod steps;

use checks::Outcome;
use steps::Program;

#[tokio::main]
async fn main() {
    println!("BEGIN connect");
    let program = match Program::connect().await {
        Ok(program) => {
            report("connect", Ok(String::new()));
            program
        }
        Err(error) => return report("connect", Err(error)),
    };
    let wanted = std::env::var("ORIBI_STEPS").unwrap_or_default();
    for name in steps::NAMES {
        if !wanted.split(',').any(|each| each == name) {
            continue;
        }
        println!("BEGIN {name}");
        report(name, program.run(name).await);
    }
}

fn report(name: &str, outcome: Outcome) {
    match outcome {
        Ok(detail) => println!("PASS {name} {detail}"),
        Err(error) => {
            let text = error.to_string();
            let words: Vec<&str> = text.split_whitespace().collect();
            println!("FAIL {name} {}", words.join(" "));
        }
    }
}
