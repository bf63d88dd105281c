//! Fetches a directory of the file server as `cp.get_dir` of a stock minion does: the list, then
//! for each file its hash and its chunks until an empty one comes, one request after the other
//! (`get_dir` of `Client` and `get_file` of `RemoteClient` in `salt/fileclient.py`).
//!
//! Nothing is written to disk: the content is hashed as it comes and compared with the hash that
//! the master named, so that the network end of the master is measured and not this one's disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use saltern_wire::msgpack::Value;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use super::Swarm;
use crate::stats::Channel;

use saltern_channel::RequestError;

/// Options of a fetch: the directory, the minions and the duration.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// The directory below the root of the environment `base`.
    pub dir: String,
    /// How many minions fetch it at once.
    pub minions: usize,
    /// Whether each begins anew when it has everything, until the time is up.
    pub again: bool,
    /// When it is over at the latest.
    pub limit: Duration,
}

/// Totals of a fetch over all minions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Files that were fetched whole.
    pub files: u64,
    /// Bytes of content, those of files that the end of the time cut off included.
    pub bytes: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// How often a minion had the whole directory.
    pub rounds: u64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// The SHA-256 of each file, by its path; minions that had different ones are an error.
    pub digests: BTreeMap<String, String>,
}

/// Why a directory cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The master's list of files is not one, or has none in the directory.
    #[error("the master lists no files in \"{0}\"")]
    NoFiles(String),
    /// An answer that is not understood.
    #[error("the master's answer about \"{path}\" has no {missing}")]
    Malformed {
        /// The file.
        path: String,
        /// The missing part.
        missing: &'static str,
    },
    /// The content has another hash than the master announced, or than the one of another minion.
    #[error("the content of \"{0}\" is not what the master announced")]
    WrongContent(String),
    /// The master announced and sent other content than its file root has.
    #[error("the content of \"{0}\" is not that of the file")]
    OtherFile(String),
    /// The file cannot be read for that comparison.
    #[error("cannot read \"{path}\" to compare it")]
    Unreadable {
        /// Below the file root.
        path: String,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

impl Swarm {
    /// Fetches a directory with the first minions of the swarm.
    ///
    /// # Errors
    /// The first failure of any minion; running out of time is none.
    pub async fn fetch(&self, fetch: &Fetch) -> Result<Fetched, FetchError> {
        let begin = Instant::now();
        let end = begin + fetch.limit;
        let minions = self.members.iter().take(fetch.minions.max(1));
        let all = join_all(minions.map(|member| async move {
            let mut fetching = Fetching::new(member, self.config.request_timeout);
            let work = fetching.run(fetch);
            let outcome = timeout_at(end, work).await;
            outcome.unwrap_or(Ok(())).map(|()| fetching.done)
        }))
        .await;
        let mut whole = Fetched::default();
        for one in all {
            whole.add(one?)?;
        }
        whole.elapsed = begin.elapsed();
        Ok(whole)
    }
}

impl Fetched {
    /// Compares what came with the files themselves: for a master whose file root is readable here.
    ///
    /// # Errors
    /// The first file that is another one, or cannot be read.
    pub fn compare_with(&self, root: &Path) -> Result<(), FetchError> {
        for (path, digest) in &self.digests {
            match file_digest(&root.join(path)) {
                Ok(hashed) if hashed == *digest => {}
                Ok(_) => return Err(FetchError::OtherFile(path.clone())),
                Err(source) => {
                    let path = path.clone();
                    return Err(FetchError::Unreadable { path, source });
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, other: Self) -> Result<(), FetchError> {
        self.files += other.files;
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.rounds += other.rounds;
        for (path, digest) in other.digests {
            self.note(path, digest)?;
        }
        Ok(())
    }

    fn note(&mut self, path: String, digest: String) -> Result<(), FetchError> {
        match self.digests.get(&path) {
            Some(known) if *known != digest => Err(FetchError::WrongContent(path)),
            Some(_) => Ok(()),
            None => {
                self.digests.insert(path, digest);
                Ok(())
            }
        }
    }
}

/// One minion at work.
struct Fetching<'a> {
    member: &'a Channel,
    limit: Duration,
    done: Fetched,
}

impl<'a> Fetching<'a> {
    fn new(member: &'a Channel, limit: Duration) -> Self {
        let done = Fetched::default();
        Self {
            member,
            limit,
            done,
        }
    }

    async fn run(&mut self, fetch: &Fetch) -> Result<(), FetchError> {
        loop {
            for path in self.list(&fetch.dir).await? {
                self.file(path).await?;
            }
            // A stock minion makes the directories that are empty; here they only cost their turn.
            let listing = [
                ("saltenv", "base"),
                ("prefix", &fetch.dir),
                ("cmd", "_file_list_emptydirs"),
            ];
            self.ask(&listing.map(|(name, value)| (name, Value::from(value))))
                .await?;
            self.done.rounds += 1;
            if !fetch.again {
                return Ok(());
            }
        }
    }

    async fn list(&mut self, dir: &str) -> Result<Vec<String>, FetchError> {
        let load = [
            ("saltenv", Value::from("base")),
            ("prefix", dir.into()),
            ("cmd", "_file_list".into()),
        ];
        let listed = self.ask(&load).await?;
        let inside = |path: &&str| path.strip_prefix(dir).is_some_and(|p| p.starts_with('/'));
        let paths = listed.as_array().unwrap_or_default().iter();
        let paths: Vec<String> = paths
            .filter_map(Value::as_str)
            .filter(inside)
            .map(str::to_owned)
            .collect();
        if paths.is_empty() {
            return Err(FetchError::NoFiles(dir.to_owned()));
        }
        Ok(paths)
    }

    async fn file(&mut self, path: String) -> Result<(), FetchError> {
        let load = |cmd: &str| {
            vec![
                ("path", Value::from(path.as_str())),
                ("saltenv", "base".into()),
                ("cmd", cmd.into()),
            ]
        };
        let malformed = |missing| FetchError::Malformed {
            path: path.clone(),
            missing,
        };
        let expected = self.ask(&load("_file_hash")).await?;
        let expected = expected.get("hsum").and_then(Value::as_str);
        let expected = expected.ok_or_else(|| malformed("hash"))?.to_owned();
        let (mut content, mut place) = (Sha256::new(), 0_u64);
        loop {
            let mut chunk = load("_serve_file");
            chunk.push(("loc", place.into()));
            let answer = self.ask(&chunk).await?;
            let data = answer.get("data").and_then(Value::as_bytes);
            let data = data.ok_or_else(|| malformed("data"))?;
            if data.is_empty() {
                break;
            }
            content.update(data);
            place += data.len() as u64;
            self.done.bytes += data.len() as u64;
        }
        let digest = hex(content);
        if digest != expected {
            return Err(FetchError::WrongContent(path));
        }
        self.done.files += 1;
        self.done.note(path, digest)
    }

    async fn ask(&mut self, load: &[(&str, Value)]) -> Result<Value, RequestError> {
        let answer = self.member.send(load, self.limit).await?;
        self.done.requests += 1;
        Ok(answer)
    }
}

fn file_digest(path: &Path) -> io::Result<String> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut content = Sha256::new();
    loop {
        let read = file.fill_buf()?;
        if read.is_empty() {
            return Ok(hex(content));
        }
        content.update(read);
        let length = read.len();
        file.consume(length);
    }
}

fn hex(content: Sha256) -> String {
    let digest = content.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(path: &str, digest: &str) -> Fetched {
        Fetched {
            files: 1,
            bytes: 10,
            requests: 4,
            rounds: 1,
            elapsed: Duration::from_secs(1),
            digests: BTreeMap::from([(path.to_owned(), digest.to_owned())]),
        }
    }

    #[test]
    fn minions_that_got_different_content_are_an_error() {
        let mut whole = Fetched::default();
        for path in ["dir/a", "dir/b", "dir/a"] {
            whole.add(fetched(path, path)).expect("they agree");
        }
        assert_eq!((whole.files, whole.bytes, whole.requests), (3, 30, 12));
        assert_eq!(whole.digests.len(), 2);
        let error = whole
            .add(fetched("dir/a", "another"))
            .expect_err("they differ");
        assert!(error.to_string().contains("\"dir/a\""), "{error}");
    }

    #[test]
    fn fetched_files_are_compared_with_the_source() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::write(root.path().join("a"), "abc").expect("a file");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(fetched("a", abc).compare_with(root.path()).is_ok());
        let other = fetched("a", "00").compare_with(root.path());
        assert!(matches!(other, Err(FetchError::OtherFile(_))), "{other:?}");
        let missing = fetched("b", abc).compare_with(root.path());
        assert!(matches!(missing, Err(FetchError::Unreadable { .. })));
    }
}
