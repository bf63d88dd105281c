//! Checks, before a start, of options whose values only the parts that use them understand: it
//! calls the same constructors, and opens, creates or fetches nothing.

use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_config::{Finding, MasterConfig, Severity};
use saltern_content::ext_pillar::{ExtPillarError, ExtPillars};
use saltern_content::files::{FileServer, FilesError, GitError};
use saltern_content::pillar::{PillarError, Pillars};
use saltern_store::{MasterKeys, StoreError};

/// Findings about files, pillars and keys of a configuration. An error is a value that
/// [`Stores::open`](crate::Stores::open) refuses.
pub fn check(config: &MasterConfig, clock: &Clock) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |(option, message): (String, String)| {
        findings.push(config.finding(Severity::Error, &option, message));
    };
    let files = FileServer::new(config, clock.clone());
    if let Err(error) = &files {
        refuse(of_files(error));
    }
    if let Err(ExtPillarError::Git(error)) = ExtPillars::new(config) {
        refuse(of_git(&error, "ext_pillar"));
    }
    for error in Pillars::check(config, clock.clone()) {
        match error {
            PillarError::Option { name, problem } => refuse((name.to_owned(), problem)),
            PillarError::Files(error) => refuse(of_files(&error)),
        }
    }
    if let Err(error) = MasterKeys::check(config) {
        let option = match &error {
            StoreError::Option { option, .. } => option,
            _ => "pki_dir",
        };
        refuse((option.to_owned(), chain(&error)));
    }
    for (option, problem) in files.iter().flat_map(FileServer::problems) {
        findings.push(config.finding(Severity::Warning, option, problem));
    }
    findings
}

fn of_files(error: &FilesError) -> (String, String) {
    match error {
        FilesError::Option { name, problem } => ((*name).to_owned(), problem.clone()),
        FilesError::Git(error) => of_git(error, "gitfs_remotes"),
        error => ("file_roots".to_owned(), chain(error)),
    }
}

fn of_git(error: &GitError, remotes: &str) -> (String, String) {
    match error {
        GitError::Option { option, problem } => (option.clone(), problem.clone()),
        error => (remotes.to_owned(), chain(error)),
    }
}
