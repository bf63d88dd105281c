//! `salt-cp`: copies files of this machine to minions, in one job or, with `-C`, a job for each part of
//! a file. One part at a time is in memory.

mod fetch;
mod sources;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use saltern_client::{ClientConfig, ClientError, LocalClient, MinionOutcome, PublishRequest};
use saltern_config::MasterConfig;
use saltern_output::{NO_MINIONS_MATCHED, no_response};
use saltern_wire::msgpack::Value;
use tokio::runtime;

use crate::console::{Console, say};
use crate::options::{CommandOptions, CopyCommand, CopyOptions, Ending, read};
use crate::settings;
use crate::target::target;
use crate::terminal::{CopyBar, CopyUnit};
use sources::{SourceError, Sources, remote_path};

/// Exit code of stock for a source that is not there.
const NO_SOURCE: u8 = 42;

/// Exit code of other failures.
const FAILED: u8 = 1;

/// Bytes of a part where nobody says how many (`salt_cp_chunk_size`).
const PART: usize = 98_304;

/// Most bytes of a part: a job has to fit into a request.
const MAX_PART: usize = 16 << 20;

/// The result of each path, by minion.
type Results = BTreeMap<String, Vec<(String, Value)>>;

/// Runs `salt-cp` with a command line, without the name of the program.
pub fn main(words: Vec<String>) -> ExitCode {
    run(words).unwrap_or_else(|ending| ending.finish())
}

fn run(words: Vec<String>) -> Result<ExitCode, Ending> {
    let parsed = read::<CopyOptions>(words, io::stdin().lock())?;
    let command = CopyCommand::check(parsed)?;
    let config = settings::load(&command.options.config)?;
    execute(&config, command, Direction::ToMinions)?;
    Ok(ExitCode::SUCCESS)
}

/// Direction of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Files of this machine to minions.
    ToMinions,
    /// Files of minions to this machine (`cp.push`): each minion has a directory of its id below the
    /// destination; where that is empty, what the minions push stays in the master's cache.
    FromMinions,
}

/// `saltern cp`: the same, with an exit code that says whether all of it was copied.
#[must_use]
pub fn copy(config: &MasterConfig, command: CopyCommand, direction: Direction) -> ExitCode {
    match execute(config, command, direction) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(ending) => ending.finish(),
    }
}

/// Copies and prints what each minion says; whether all was copied.
fn execute(
    config: &MasterConfig,
    mut command: CopyCommand,
    direction: Direction,
) -> Result<bool, Ending> {
    CopyOptions::grammar().fill(&mut command.options, |name| config.command_default(name));
    let console = Console::open(&command.options.output, config)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    let directory = command.options.config.directory();
    let target = target(&command.target, command.target_type, &directory, config)
        .map_err(|error| Ending::failed(FAILED, format!("{error}\n")))?;
    let tool = CopyTool {
        target,
        client: LocalClient::new(ClientConfig::from(config)),
        part: part_size(config),
        named: command.sources.iter().map(|name| real_path(name)).collect(),
        command: &command,
        bar: CopyBar::on_stderr(match direction {
            Direction::ToMinions => CopyUnit::Bytes,
            Direction::FromMinions => CopyUnit::Sources,
        }),
    };
    let copied = async {
        match direction {
            Direction::ToMinions => tool.copy().await,
            Direction::FromMinions => tool.fetch(&config.cachedir).await,
        }
    };
    let results = runtime.block_on(async {
        tokio::select! {
            results = copied => results.map(Some),
            _ = tokio::signal::ctrl_c() => Ok(None),
        }
    });
    // The bar is gone before anything is printed.
    drop(tool);
    let results = results?;
    let Some(results) = results else {
        return Err(Ending::failed(
            FAILED,
            "\nExiting gracefully on Ctrl-c: a part of the files may be on the minions\n",
        ));
    };
    console
        .display(&results, Some("nested"))
        .map_err(|error| failed(&error))?;
    Ok(is_copied(&results))
}

/// Whether every minion says `True`, of each path where it has several.
fn is_copied(results: &Value) -> bool {
    let is_true = |value: &Value| match value {
        Value::Map(paths) => paths.iter().all(|(_, value)| value.as_bool() == Some(true)),
        value => value.as_bool() == Some(true),
    };
    let minions = results.as_map().unwrap_or_default();
    !minions.is_empty() && minions.iter().all(|(_, value)| is_true(value))
}

fn part_size(config: &MasterConfig) -> usize {
    let configured = config
        .command_default("salt_cp_chunk_size")
        .and_then(|node| node.as_i64());
    let configured = configured.and_then(|bytes| usize::try_from(bytes).ok());
    configured
        .filter(|bytes| (1..=MAX_PART).contains(bytes))
        .unwrap_or(PART)
}

/// As `os.path.realpath`: links resolved as far as there is something.
fn real_path(name: &str) -> PathBuf {
    let path = Path::new(name);
    fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.into())
}

struct CopyTool<'a> {
    client: LocalClient,
    /// The target, and how it is read.
    target: (Value, &'static str),
    command: &'a CopyCommand,
    /// The sources, with links resolved.
    named: Vec<PathBuf>,
    part: usize,
    bar: CopyBar,
}

impl CopyTool<'_> {
    async fn copy(&self) -> Result<Value, Ending> {
        match self.command.options.chunked {
            Some(true) => self.in_parts().await,
            _ => self.at_once().await,
        }
    }

    /// All files in one job (`cp.recv`).
    async fn at_once(&self) -> Result<Value, Ending> {
        let mut files: Vec<(Value, Value)> = Vec::new();
        for path in &self.named {
            let name = path.display();
            if path.is_dir() {
                let text = format!(
                    "{name} is a directory, only files are supported in non-chunked mode. Use \
                     \"--chunked\" command line argument.\n"
                );
                return Err(Ending::failed(FAILED, "").after(text));
            }
            if !path.is_file() {
                continue;
            }
            let text = fs::read(path).map_err(|error| unreadable(path, &error))?;
            let text = String::from_utf8(text).map_err(|_| {
                let text = format!("{name} is no text: copy it with --chunked\n");
                Ending::failed(FAILED, text)
            })?;
            files.push((name.to_string().into(), text.into()));
        }
        let bytes = |(_, text): &(Value, Value)| text.as_str().map_or(0, str::len) as u64;
        let total = files.iter().map(bytes).sum();
        if let Some((name, _)) = files.first() {
            self.bar.name(file_name(name.as_str().unwrap_or_default()));
        }
        self.bar.begin(total);
        let destination = Value::from(self.command.destination.as_str());
        let returned = self
            .job("cp.recv", vec![Value::Map(files), destination])
            .await?;
        let returned = returned.unwrap_or_default().into_iter();
        Ok(Value::Map(
            returned.map(|(id, value)| (id.into(), value)).collect(),
        ))
    }

    /// Each file in jobs of its own (`cp.recv_chunked`).
    async fn in_parts(&self) -> Result<Value, Ending> {
        let found = Sources::find(&self.named).map_err(|error| match &error {
            SourceError::Missing(_) => Ending::failed(NO_SOURCE, format!("{error}\n")),
            SourceError::Io { .. } => Ending::failed(FAILED, format!("{error}\n")),
        })?;
        let destination = self.command.destination.as_str();
        let is_directory = found.need_directory(destination);
        let mut results = Results::new();
        self.bar.begin(found.bytes);
        for (path, mode) in &found.files {
            let remote = remote_path(path, &self.named, destination, is_directory);
            let remote = remote.display().to_string();
            for (id, value) in self.file(path, *mode, &remote).await? {
                results.entry(id).or_default().push((remote.clone(), value));
            }
        }
        for path in &found.empty {
            let remote = remote_path(path, &self.named, destination, is_directory);
            let remote = remote.display().to_string();
            let arguments = vec![Value::from(remote.as_str()), Value::Nil];
            let returned = self.job("cp.recv_chunked", arguments).await?;
            for (id, value) in returned.unwrap_or_default() {
                results.entry(id).or_default().push((remote.clone(), value));
            }
        }
        let results = results.into_iter().map(|(id, paths)| {
            let paths = paths
                .into_iter()
                .map(|(path, value)| (Value::from(path), value));
            (Value::from(id), Value::Map(paths.collect()))
        });
        Ok(Value::Map(results.collect()))
    }

    /// One file; gives for each minion the first failure, or its last answer.
    async fn file(
        &self,
        path: &Path,
        mode: u32,
        remote: &str,
    ) -> Result<BTreeMap<String, Value>, Ending> {
        let opened = File::open(path).map_err(|error| unreadable(path, &error))?;
        self.bar.name(file_name(&path.to_string_lossy()));
        let mut parts = Parts {
            file: opened,
            size: self.part,
            is_compressed: self.command.options.gzip != Some(false),
            is_over: false,
            taken: 0,
        };
        let mut results: BTreeMap<String, Value> = BTreeMap::new();
        let mut is_first = true;
        while let Some(part) = parts.next().map_err(|error| unreadable(path, &error))? {
            let arguments = vec![
                Value::from(remote),
                base64::engine::general_purpose::STANDARD
                    .encode(part)
                    .into(),
                Value::from(!is_first),
                Value::from(parts.is_compressed),
                Value::from(i64::from(mode)),
            ];
            let Some(returned) = self.job("cp.recv_chunked", arguments).await? else {
                break;
            };
            for (id, value) in returned {
                let is_failed = results
                    .get(&id)
                    .is_some_and(|known| known.as_bool() != Some(true));
                if !is_failed {
                    results.insert(id, value);
                }
            }
            is_first = false;
            self.bar.add(std::mem::take(&mut parts.taken));
        }
        Ok(results)
    }

    /// Publishes a job and waits for its returns; `None` where it reached nobody.
    async fn job(
        &self,
        function: &str,
        arguments: Vec<Value>,
    ) -> Result<Option<Vec<(String, Value)>>, Ending> {
        let (target, kind) = self.target.clone();
        let mut request = PublishRequest::new(target, kind, function, arguments);
        let seconds = self
            .command
            .options
            .timeout
            .and_then(|it| u64::try_from(it).ok());
        request.timeout = seconds.map(Duration::from_secs);
        let mut job = match self.client.run(&request).await {
            Ok(job) => job,
            Err(ClientError::NoMinions) => {
                self.bar.aside(|| say(&format!("{NO_MINIONS_MATCHED}\n")));
                return Ok(None);
            }
            Err(error) => return Err(asked(&error)),
        };
        let mut returned = Vec::new();
        self.bar.returned(0, job.expected().len());
        while let Some(outcome) = job.next().await.map_err(|error| asked(&error))? {
            returned.push(match outcome {
                MinionOutcome::Returned(minion) => (minion.id, minion.value),
                MinionOutcome::NoResponse { id, .. } => (id, no_response(job.jid()).into()),
            });
            self.bar.returned(returned.len(), job.expected().len());
        }
        Ok(Some(returned))
    }
}

/// Reads a file part by part.
struct Parts {
    file: File,
    size: usize,
    is_compressed: bool,
    is_over: bool,
    /// Bytes read since somebody took the count.
    taken: u64,
}

impl Parts {
    /// The next part. Compressed, a file has a last part that is not full, so an empty file has one;
    /// otherwise it has none, as in stock.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.is_over {
            return Ok(None);
        }
        let mut part = Vec::with_capacity(self.size);
        Read::by_ref(&mut self.file)
            .take(self.size as u64)
            .read_to_end(&mut part)?;
        self.is_over = part.len() < self.size;
        self.taken += part.len() as u64;
        if !self.is_compressed {
            return Ok(Some(part).filter(|part| !part.is_empty()));
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&part)?;
        encoder.finish().map(Some)
    }
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn unreadable(path: &Path, error: &io::Error) -> Ending {
    let text = format!("{} cannot be read: {error}\n", path.display());
    Ending::failed(FAILED, text)
}

fn failed(error: &io::Error) -> Ending {
    Ending::failed(FAILED, format!("{error}\n"))
}

fn asked(error: &ClientError) -> Ending {
    let code = error.exit() as u8;
    Ending::failed(code, format!("{}\n", saltern_base::chain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(content: &[u8], is_compressed: bool) -> Vec<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, content).unwrap();
        let mut parts = Parts {
            file: File::open(path).unwrap(),
            size: 4,
            is_compressed,
            is_over: false,
            taken: 0,
        };
        std::iter::from_fn(|| parts.next().unwrap()).collect()
    }

    #[test]
    fn file_is_cut_as_stock_cuts_it() {
        assert_eq!(
            parts(b"abcdefg", false),
            [b"abcd".to_vec(), b"efg".to_vec()]
        );
        assert_eq!(parts(b"abcd", false), [b"abcd".to_vec()]);
        assert!(parts(b"", false).is_empty());
        for (content, count) in [(&b"abcdefg"[..], 2), (b"abcd", 2), (b"", 1)] {
            let parts = parts(content, true);
            assert_eq!(parts.len(), count);
            let mut whole = Vec::new();
            for part in parts {
                flate2::read::GzDecoder::new(&*part)
                    .read_to_end(&mut whole)
                    .unwrap();
            }
            assert_eq!(whole, content);
        }
    }
}
