//! The file phases: each load is fetched by one minion first and then by several at
//! once, which shows whether the master or the one minion was at its limit.

use std::path::PathBuf;
use std::time::Duration;

use saltern_config::MasterConfig;
use saltern_config::yaml::Node;
use saltern_minion::swarm::{Fetch, FetchError, Fetched, Swarm};

use super::progress::Progress;

/// A minion that fetches alone gets everything once, however long it takes up to this.
const ALONE: Duration = Duration::from_secs(120);

/// Files to fetch: the name of the phase, the directory in the first file root, and how many
/// minions fetch it when it is several.
const LOADS: [(&str, &str, usize); 2] = [
    ("files_small", "bench/small", 8),
    ("files_large", "bench/large", 4),
];

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the master gives its files out slower than one directory in {} s", ALONE.as_secs())]
    Slow,
    #[error("\"file_roots\" names no directory for \"base\"")]
    NoRoot,
}

/// Fetches each load alone and together and prints the figures. `limit` is how long those that
/// fetch together go on.
pub(crate) async fn run(
    swarm: &Swarm,
    config: &MasterConfig,
    limit: Duration,
    progress: &Progress,
) -> Result<(), FilesError> {
    let root = root(config).ok_or(FilesError::NoRoot)?;
    // The first request finds every process of a stock master cold.
    swarm
        .fetch(&Fetch {
            dir: LOADS[0].1.to_owned(),
            minions: LOADS[0].2,
            again: false,
            limit: limit / 2,
        })
        .await?;
    for (phase, dir, minions) in LOADS {
        progress.begin(phase);
        let alone = swarm
            .fetch(&Fetch {
                dir: dir.to_owned(),
                minions: 1,
                again: false,
                limit: ALONE,
            })
            .await?;
        end(progress, phase, &alone);
        if alone.rounds == 0 {
            return Err(FilesError::Slow);
        }
        alone.compare_with(&root)?;
        let phase = format!("{phase}_together");
        progress.begin(&phase);
        let together = swarm
            .fetch(&Fetch {
                dir: dir.to_owned(),
                minions,
                again: true,
                limit,
            })
            .await?;
        end(progress, &phase, &together);
        together.compare_with(&root)?;
    }
    Ok(())
}

fn end(progress: &Progress, phase: &str, fetched: &Fetched) {
    let seconds = fetched.elapsed.as_secs_f64();
    let rate = |count: f64| count / seconds.max(1e-9);
    progress.end(
        phase,
        &[
            ("done", fetched.files as f64),
            ("bytes", fetched.bytes as f64),
            ("requests", fetched.requests as f64),
            ("seconds", seconds),
            ("per_second", rate(fetched.files as f64)),
            ("megabytes_per_second", rate(fetched.bytes as f64 / 1e6)),
        ],
    );
}

/// The first directory of the environment `base`.
fn root(config: &MasterConfig) -> Option<PathBuf> {
    let environments = config.file_roots().as_map()?;
    let base = environments.get("base")?;
    base.as_seq()?
        .first()
        .and_then(Node::as_str)
        .map(PathBuf::from)
}
