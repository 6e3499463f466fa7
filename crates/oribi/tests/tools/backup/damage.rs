//! An archive with any damaged file is refused, and the file is named.

use std::fs;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::backup::table::{table_of, write};
use crate::backup::{Fixture, problems};

// Invariant: Any damage of any file of an archive is named, and nothing is restored from it.
#[tokio::test]
async fn a_damaged_archive_is_named_and_restores_nothing() {
    let source = Fixture::start();
    let client = source.client().await;
    for number in 0..20 {
        write(&client, client.default_collection(), &number.to_string(), "value").await;
    }
    let archive = source.archive();
    // Two parts, each with its own segment; the one document more is in one of them.
    source.backup(&["create", &archive, "--jobs", "2"]);
    write(&client, client.default_collection(), "more", "value").await;
    let last = source.backup(&["create", &archive, "--jobs", "2"]);
    let last = last["id"].as_str().expect("an id").to_owned();

    let mut files = Vec::new();
    for entry in fs::read_dir(source.path("archive/backups")).expect("a directory") {
        for file in fs::read_dir(entry.expect("an entry").path()).expect("a directory") {
            files.push(file.expect("an entry").path());
        }
    }
    assert_eq!(files.len(), 5, "{files:?}");
    let target = Fixture::start();
    for file in &files {
        let whole = fs::read(file).expect("it can be read");
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [Some(flipped), Some(whole[..whole.len() - 1].to_vec()), None] {
            match damaged {
                Some(bytes) => fs::write(file, bytes).expect("it can be written"),
                None => fs::remove_file(file).expect("it can be removed"),
            }
            let name = file.file_name().expect("a name").to_str().expect("text");
            let found = problems(&source, &archive);
            assert!(found.iter().any(|problem| problem.contains(name)), "{name}: {found:?}");
            target.backup_fails(&["restore", &archive, "--at", &last]);
            fs::write(file, &whole).expect("it can be written");
        }
    }
    // A stranger's archive may have a pipe, which nothing is ever written to.
    for file in files.iter().filter(|file| file.extension().is_some_and(|name| name == "seg")) {
        let whole = fs::read(file).expect("it can be read");
        fs::remove_file(file).expect("it can be removed");
        mknodat(CWD, file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let found = problems(&source, &archive);
        assert!(found.iter().any(|problem| problem.contains("not a regular file")), "{found:?}");
        let error = target.backup_fails(&["restore", &archive, "--at", &last]);
        assert!(error.contains("not a regular file"), "{error}");
        fs::remove_file(file).expect("it can be removed");
        fs::write(file, &whole).expect("it can be written");
    }
    assert!(table_of(&target.client().await).await.is_empty(), "nothing was restored");
    assert_eq!(problems(&source, &archive), [""; 0]);
    assert_eq!(target.backup(&["restore", &archive])["written"], 21);

    let foreign = source.path("foreign");
    fs::create_dir(&foreign).expect("a directory");
    fs::write(foreign.join("letter"), "mine").expect("a file");
    let error = source.backup_fails(&["create", foreign.to_str().expect("text")]);
    assert!(error.contains("letter"), "{error}");
    let absent = source.path("absent");
    source.backup_fails(&["prune", absent.to_str().expect("text"), "--keep-last", "1"]);
    assert!(!absent.exists());
}
