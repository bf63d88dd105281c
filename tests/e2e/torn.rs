//! A power cut during a write: the disk has only a part of the last commit. What was acknowledged
//! before stays; the torn commit, which was not acknowledged, is rolled back; and nothing is taken
//! for damaged. Needs a binary built with the feature `fault-injection`.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::SOON;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

/// Damage at the end of the write-ahead log.
#[derive(Clone, Copy, Debug)]
enum Tear {
    /// The last page of the commit arrived in part.
    CutShort,
    /// It has its length, but its second half never left the disk's cache.
    Zeroed,
    /// Its bytes are others.
    Garbled,
    /// The commit is whole; of a next one only the beginning arrived.
    Begun,
}

#[test]
fn torn_last_commit_is_rolled_back_alone() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("auto_accept", "True"),
        |site| {
            site.announce("auto_accept");
            let mut fleet = site.start_fleet("torn", 50, &["--returns", "16"])?;
            for tear in [Tear::CutShort, Tear::Zeroed, Tear::Garbled, Tear::Begun] {
                site.step(&format!("the last commit is torn: {tear:?}"));
                fleet.wait_for_more(50)?;
                die_after_a_commit(site)?;
                tear_last_commit(&site.path("cache/saltern/jobs.sqlite-wal"), tear)?;
                site.start_master_only()?;
                fleet.wait_for_more(50)?;
            }
            let ledger = fleet.stop()?;
            site.accounts(&ledger)?.expect_balance()?;
            let aside = set_aside(&site.path("cache/saltern"))?;
            ensure!(aside.is_empty(), "taken for damaged: {aside:?}");
            Ok(())
        },
    )
}

/// Ends the master right after a commit that is not acknowledged yet.
fn die_after_a_commit(site: &mut Site) -> Result<()> {
    site.saltern(&["debug", "die", "commit-after"])?
        .expect_code(0)?;
    wait_until("the master to die", SOON, || site.master().ended())?;
    site.kill_master();
    Ok(())
}

fn tear_last_commit(log: &Path, tear: Tear) -> Result<()> {
    let mut bytes = std::fs::read(log).with_context(|| log.display().to_string())?;
    let frame = last_frame(&bytes)?;
    let middle = frame.start + frame.len() / 2;
    match tear {
        Tear::CutShort => bytes.truncate(middle),
        Tear::Zeroed => bytes[middle..frame.end].fill(0),
        Tear::Garbled => bytes[middle..frame.end]
            .iter_mut()
            .for_each(|byte| *byte ^= 0x5a),
        Tear::Begun => {
            let begun = bytes[frame.start..middle].to_vec();
            bytes.truncate(frame.end);
            bytes.extend(begun);
        }
    }
    Ok(std::fs::write(log, bytes)?)
}

/// Position of the last valid frame of a write-ahead log, which ends a commit ("WAL-mode file
/// format" in SQLite's documentation: numbers are big-endian; frames of earlier rounds have other
/// salts).
fn last_frame(log: &[u8]) -> Result<Range<usize>> {
    const HEADER: usize = 32;
    const FRAME_HEADER: usize = 24;
    let number = |at: usize| {
        let bytes = log.get(at..at + 4).context("the log is too short")?;
        Ok::<_, anyhow::Error>(u32::from_be_bytes(bytes.try_into()?))
    };
    let length = FRAME_HEADER + number(8)? as usize;
    let salt = &log[16..24];
    let starts = (HEADER..).step_by(length);
    let valid = starts.take_while(|start| log.get(start + 8..start + 16) == Some(salt));
    let start = valid
        .filter(|start| start + length <= log.len())
        .last()
        .context("the log is empty")?;
    let pages_after_commit = number(start + 4)?;
    ensure!(pages_after_commit > 0, "the last frame ends no commit");
    Ok(start..start + length)
}

fn set_aside(directory: &Path) -> Result<Vec<String>> {
    let names = std::fs::read_dir(directory)?.flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.contains("damaged")).collect())
}
