//! Shell completion: ids of minions, functions, jobs. From the running master's cache and the job
//! database; no job is published for it. On any error nothing is completed.

use std::sync::Arc;

use saltern_client::control;
use saltern_config::MasterConfig;
use saltern_runners::runner_names;
use saltern_sql::open_reader;
use saltern_store::StoreError;
use saltern_store::jobs::{JobQueries, JobsPage};

/// The most words of an answer.
const MAX_WORDS: usize = 1_000;

/// The newest jobs that are offered.
const JOBS: usize = 50;

/// Kind of a word to complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The id of an accepted minion.
    Minions,
    /// A function of minions that was called before.
    Functions,
    /// A function of the master.
    Runners,
    /// A job.
    Jobs,
}

/// The words that begin so, sorted; jobs newest first. Only such as no shell reads anything into: names
/// come from minions, too.
#[must_use]
pub fn words(config: &MasterConfig, kind: Kind, prefix: &str) -> Vec<String> {
    let mut words = match kind {
        Kind::Minions => control::minion_ids(&config.sock_dir, prefix).unwrap_or_default(),
        Kind::Functions => functions(config, prefix).unwrap_or_default(),
        Kind::Runners => runner_names(),
        Kind::Jobs => jobs(config).unwrap_or_default(),
    };
    words.retain(|word| word.starts_with(prefix) && is_plain(word));
    words.truncate(MAX_WORDS);
    words
}

fn functions(config: &MasterConfig, prefix: &str) -> Result<Vec<String>, StoreError> {
    reader(config)?.functions(prefix, MAX_WORDS)
}

fn jobs(config: &MasterConfig) -> Result<Vec<String>, StoreError> {
    let page = JobsPage {
        limit: JOBS,
        ..JobsPage::default()
    };
    let jobs = reader(config)?.jobs_page(&page)?;
    Ok(jobs.iter().map(|job| job.jid.to_string()).collect())
}

fn reader(config: &MasterConfig) -> Result<Arc<dyn JobQueries>, StoreError> {
    open_reader(config)
}

fn is_plain(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@:".contains(c);
    !word.is_empty() && word.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_read_are_not_offered() {
        assert!(is_plain("web-1.example") && is_plain("test.ping"));
        for word in [
            "",
            "$(reboot)",
            "a b",
            "a;b",
            "a`b`",
            "a\nb",
            "ü",
            "*",
            "~x",
        ] {
            assert!(!is_plain(word), "{word:?}");
        }
    }
}
