//! Fetches files of minions: they push them to the master (`cp.push`, which the option `file_recv` allows),
//! and from the master's cache they are copied to where they are wanted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::{CopyTool, FAILED};
use crate::options::Ending;

/// What stands for a file that a minion does not push.
const NOT_PUSHED: &str =
    "not pushed: there is no such file, or the option file_recv of the master is not set";

impl CopyTool<'_> {
    /// What became of each file of each minion: `True`, or why not.
    pub(super) async fn fetch(&self, cachedir: &Path) -> Result<Value, Ending> {
        let mut results: BTreeMap<String, Vec<(Value, Value)>> = BTreeMap::new();
        for name in &self.command.sources {
            let below = relative(name).ok_or_else(|| {
                let text = format!("\"{name}\" is no absolute path of one file\n");
                Ending::failed(FAILED, text)
            })?;
            let arguments = vec![Value::from(name.as_str())];
            let pushed = self.job("cp.push", arguments).await?;
            for (id, value) in pushed.unwrap_or_default() {
                let result = match value.as_bool() {
                    Some(true) => self.take(cachedir, &id, &below),
                    Some(false) => NOT_PUSHED.into(),
                    None => value,
                };
                results
                    .entry(id)
                    .or_default()
                    .push((name.as_str().into(), result));
            }
        }
        let results = results.into_iter();
        Ok(Value::Map(
            results
                .map(|(id, paths)| (id.into(), Value::Map(paths)))
                .collect(),
        ))
    }

    /// Copies a pushed file out of the cache, if it is wanted elsewhere.
    fn take(&self, cachedir: &Path, id: &str, below: &Path) -> Value {
        let destination = self.command.destination.as_str();
        if destination.is_empty() {
            return true.into();
        }
        let Ok(id) = MinionId::parse(id) else {
            return "its id is none".into();
        };
        let pushed = cachedir.join("minions").join(id.as_str()).join("files");
        let target = Path::new(destination).join(id.as_str()).join(below);
        match copy_file(&pushed.join(below), &target) {
            Ok(()) => true.into(),
            Err(error) => format!("\"{}\" is not written: {error}", target.display()).into(),
        }
    }
}

fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    if let Some(directory) = target.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::copy(source, target).map(|_| ())
}

/// An absolute path below a directory; nothing for one that leads elsewhere.
fn relative(path: &str) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for component in Path::new(path).strip_prefix("/").ok()?.components() {
        match component {
            Component::Normal(name) => below.push(name),
            _ => return None,
        }
    }
    (below.components().count() > 0).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetched_path_stays_below_its_directory() {
        for (path, below) in [
            ("/etc/hosts", Some("etc/hosts")),
            ("/etc//hosts", Some("etc/hosts")),
            ("/etc/../hosts", None),
            ("etc/hosts", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(relative(path).as_deref(), below.map(Path::new), "{path:?}");
        }
    }
}
