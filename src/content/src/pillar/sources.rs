//! Source of top files, SLS files and templates: `pillar_roots`.
//!
//! Files are only reached below their roots, by a normal relative path; links in a root are
//! followed wherever they lead, as in stock. Texts are kept in memory as long as the
//! file is the same by its times, size and inode, lists of SLS names as long as no directory
//! changed, so that a compile neither walks nor rereads what it knows. Nothing here renders.
//!
//! Bounds: a text has at most [`MAX_TEXT_BYTES`] bytes; texts are kept up to [`KEPT_BYTES`], and all
//! are dropped when that is reached; lists are kept for [`KEPT_LISTS`] roots, likewise.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::Stat;
use saltern_base::clock::Clock;
use saltern_python::path::join;

use super::error::ReadError;
use crate::files::path::Relative;
use crate::files::root::{Links, Root, is_regular};
use crate::files::state::FileState;
use crate::files::tree::{Tree, is_settled};
use crate::render::jinja::{LoadError, Loader};

/// The most bytes that a top file, an SLS file or a template may have.
pub(super) const MAX_TEXT_BYTES: u64 = 16 << 20;

/// The most bytes of texts in memory.
const KEPT_BYTES: usize = 128 << 20;

/// The most roots whose lists are in memory; minions choose environments of `__env__`.
const KEPT_LISTS: usize = 64;

/// Caches of all roots, shared by all compilations.
pub(super) struct Sources {
    clock: Clock,
    texts: Mutex<Texts>,
    lists: Mutex<HashMap<String, Arc<Mutex<List>>>>,
}

#[derive(Default)]
struct Texts {
    /// By full path.
    known: HashMap<String, (FileState, Arc<str>)>,
    bytes: usize,
}

/// The SLS names below one root.
#[derive(Default)]
struct List {
    tree: Tree,
    names: Arc<[String]>,
}

impl Sources {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            texts: Mutex::default(),
            lists: Mutex::default(),
        }
    }

    /// The names of the SLS files below a root, with dots, sorted; none if it cannot be walked.
    fn names(&self, path: &str, root: &Root) -> Arc<[String]> {
        let list = {
            let mut lists = self.lists.lock();
            if lists.len() >= KEPT_LISTS && !lists.contains_key(path) {
                lists.clear();
            }
            lists.entry(path.to_owned()).or_default().clone()
        };
        let mut list = list.lock();
        let old = std::mem::take(&mut list.tree);
        match Tree::walk(old, Some(root), Links::Follow, self.clock.now()) {
            Ok((tree, changed)) => {
                if changed || list.names.is_empty() {
                    list.names = names_in(&tree);
                }
                list.tree = tree;
            }
            Err(error) => {
                tracing::error!(root = path, ?error, "a root of pillars cannot be listed");
                list.names = Arc::default();
            }
        }
        Arc::clone(&list.names)
    }

    /// The text of a file whose state is known.
    fn text(
        &self,
        path: &str,
        stat: &Stat,
        open: impl FnOnce() -> io::Result<File>,
    ) -> Result<Arc<str>, ReadError> {
        let mark = FileState::of(stat);
        if let Some((known, text)) = self.texts.lock().known.get(path)
            && *known == mark
        {
            return Ok(Arc::clone(text));
        }
        let failed = |error| ReadError::Io {
            path: path.to_owned(),
            error,
        };
        let file = open().map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        let mut bytes = Vec::new();
        file.take(MAX_TEXT_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if bytes.len() as u64 > MAX_TEXT_BYTES {
            return Err(ReadError::TooLarge(path.to_owned()));
        }
        let text = String::from_utf8(bytes).map_err(|_| ReadError::Encoding(path.to_owned()))?;
        let text: Arc<str> = text.into();
        let now = self.clock.now();
        // A file that was just written may change again without other times.
        if is_settled(stat.st_mtime, now) && is_settled(stat.st_ctime, now) {
            self.texts.lock().keep(path, FileState::of(&stat), &text);
        }
        Ok(text)
    }
}

/// The names of the SLS files of a tree, sorted. What the file server ignores counts, as in stock,
/// whose rule for it has no effect here.
fn names_in(tree: &Tree) -> Arc<[String]> {
    let mut names = Vec::new();
    for (directory, entries) in tree.directories() {
        let files = entries.iter().filter(|entry| !entry.kind.is_directory());
        for file in files {
            let path = join(directory, &file.name);
            let stem = path.strip_suffix("/init.sls");
            if let Some(stem) = stem.or_else(|| path.strip_suffix(".sls")) {
                names.push(stem.replace('/', "."));
            }
        }
    }
    names.sort();
    names.dedup();
    names.into()
}

impl Texts {
    fn keep(&mut self, path: &str, mark: FileState, text: &Arc<str>) {
        if self.bytes + text.len() > KEPT_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        let entry = (mark, Arc::clone(text));
        if let Some((_, old)) = self.known.insert(path.to_owned(), entry) {
            self.bytes -= old.len();
        }
        self.bytes += text.len();
    }
}

/// The roots of one environment, open for one compilation.
pub(super) struct Environment {
    sources: Arc<Sources>,
    /// Paths with what is open there; a root that is not there holds nothing.
    roots: Vec<(String, Option<Root>)>,
    names: OnceLock<Vec<String>>,
}

/// A file that was found.
pub(super) struct SourceFile<'a> {
    root: &'a Root,
    relative: Relative,
    stat: Stat,
    /// Path on disk.
    pub(super) path: String,
}

impl Environment {
    /// Opens the roots, in their order.
    pub(super) fn open(sources: &Arc<Sources>, roots: &[String]) -> Self {
        let open = |path: &String| {
            let root = Root::open(Path::new(path)).ok();
            (path.clone(), root)
        };
        Self {
            sources: Arc::clone(sources),
            roots: roots.iter().map(open).collect(),
            names: OnceLock::new(),
        }
    }

    /// Whether any root is configured.
    pub(super) fn has_roots(&self) -> bool {
        !self.roots.is_empty()
    }

    /// The first regular file with this path below a root.
    pub(super) fn find(&self, path: &str) -> Option<SourceFile<'_>> {
        let relative = Relative::parse(path).ok()?;
        self.roots.iter().find_map(|(at, root)| {
            let root = root.as_ref()?;
            let stat = root.stat(&relative, Links::Follow).ok()?;
            is_regular(&stat).then(|| SourceFile {
                root,
                path: join(at, relative.as_str()),
                relative: relative.clone(),
                stat,
            })
        })
    }

    /// The file of an SLS name, and whether it is the `init.sls` of a directory
    /// (`get_state` in `salt/fileclient.py`).
    pub(super) fn find_sls(&self, name: &str) -> Option<(SourceFile<'_>, bool)> {
        let stem = name.replace('.', "/");
        let stem = stem.trim_start_matches('/');
        let path = format!("{stem}.sls");
        let is_init = path == "init.sls" || path.ends_with("/init.sls");
        if let Some(place) = self.find(&path) {
            return Some((place, is_init));
        }
        let place = self.find(&format!("{stem}/init.sls"))?;
        Some((place, true))
    }

    /// The text of a file that was found.
    ///
    /// # Errors
    /// [`ReadError`]
    pub(super) fn text(&self, place: &SourceFile<'_>) -> Result<Arc<str>, ReadError> {
        let open = || place.root.file(&place.relative, Links::Follow);
        self.sources.text(&place.path, &place.stat, open)
    }

    /// The names of all SLS files, sorted.
    pub(super) fn names(&self) -> &[String] {
        self.names.get_or_init(|| {
            let mut all = Vec::new();
            for (path, root) in &self.roots {
                if let Some(root) = root {
                    all.extend_from_slice(&self.sources.names(path, root));
                }
            }
            all.sort();
            all.dedup();
            all
        })
    }
}

impl Loader for Environment {
    fn load(&self, path: &str) -> Result<Option<String>, LoadError> {
        match self.find(path) {
            Some(place) => match self.text(&place) {
                Ok(text) => Ok(Some(text.as_ref().to_owned())),
                Err(error) => Err(LoadError::new(error)),
            },
            None => Ok(None),
        }
    }
}
