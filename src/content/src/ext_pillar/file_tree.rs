//! `file_tree`: files as values, directories as mappings (`salt/pillar/file_tree.py`).
//!
//! Below `root_dir` the directory `hosts/<id>` is for one minion, `nodegroups/<name>` for a group.
//! Values are the bytes of the files; with `template` they are rendered first. Entries come sorted
//! by name, where stock leaves the order to the directory. A tree is bounded in entries, bytes and
//! depth, so that a link that leads back into it ends.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use saltern_config::yaml::{Node, NodeValue};
use saltern_python::expression::Pattern;
use saltern_wire::msgpack::Value;

use super::arguments::Arguments;
use super::error::{ArgumentError, SourceError};
use super::{Call, Source};
use crate::render::modules::file::open;
use crate::render::modules::merge;
use crate::render::{self, RenderError, Renderers};

/// The parameters of stock's function.
pub(super) const PARAMETERS: &[&str] = &[
    "root_dir",
    "follow_dir_links",
    "debug",
    "keep_newline",
    "render_default",
    "renderer_blacklist",
    "renderer_whitelist",
    "template",
];

/// How deep a tree may be. The system itself follows no more than 40 links in one path.
const DEPTH: usize = 64;
/// The most files and directories of one pillar.
const ENTRIES: usize = 100_000;
/// The most bytes in all files of one pillar.
const BYTES: u64 = 64 << 20;

/// Why a tree is no pillar.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    /// It has too many levels.
    #[error("\"{}\" is nested too deep", .0.display())]
    Depth(PathBuf),
    /// It has too many entries.
    #[error("there are more than {ENTRIES} files")]
    Entries,
    /// Its files are too large together.
    #[error("the files have more than {BYTES} bytes")]
    Bytes,
    /// A file that is rendered is no text.
    #[error("\"{0}\" is a template, but not UTF-8 text")]
    Encoding(String),
    /// A file does not render.
    #[error(transparent)]
    Render(#[from] RenderError),
}

/// The source.
pub(super) struct FileTree {
    root: Option<PathBuf>,
    follow: bool,
    keep_newline: Option<KeepNewline>,
    template: Option<Templates>,
}

/// Files that keep the newline at their end.
enum KeepNewline {
    All,
    None,
    /// Files whose path one of these matches.
    Matching(Vec<Pattern>),
}

/// How files are rendered.
struct Templates {
    default: Option<String>,
    whitelist: Vec<String>,
    blacklist: Vec<String>,
}

/// Remaining budget.
struct Budget {
    entries: usize,
    bytes: u64,
}

impl FileTree {
    pub(super) fn new(arguments: Arguments) -> Result<Self, ArgumentError> {
        let keep_newline = match arguments.get("keep_newline").map(|node| &node.value) {
            None | Some(NodeValue::Bool(false)) => Some(KeepNewline::None),
            Some(NodeValue::Bool(true)) => Some(KeepNewline::All),
            Some(NodeValue::Seq(items)) => Some(KeepNewline::Matching(
                items.iter().filter_map(pattern).collect(),
            )),
            Some(_) => None,
        };
        let is_template = matches!(
            arguments.get("template").map(|node| &node.value),
            Some(NodeValue::Bool(true))
        );
        let templates = Templates {
            default: arguments.text("render_default")?,
            whitelist: arguments.texts("renderer_whitelist")?.unwrap_or_default(),
            blacklist: arguments.texts("renderer_blacklist")?.unwrap_or_default(),
        };
        Ok(Self {
            root: arguments
                .text("root_dir")?
                .filter(|root| !root.is_empty())
                .map(PathBuf::from),
            follow: arguments.is_on("follow_dir_links"),
            keep_newline,
            template: is_template.then_some(templates),
        })
    }

    /// The directories that `root_dir` means for this pillar.
    fn roots(&self, call: &Call<'_>) -> Vec<PathBuf> {
        let Some(root) = &self.root else {
            tracing::error!("file_tree: no root_dir is given");
            return Vec::new();
        };
        if root.is_absolute() {
            return vec![root.clone()];
        }
        let Some(environment) = call.input.pillarenv else {
            tracing::error!("file_tree: root_dir is relative, and there is no pillarenv");
            return Vec::new();
        };
        let roots = call.input.opts.get("pillar_roots");
        let Some(roots) = roots.and_then(|roots| roots.get(environment)) else {
            tracing::error!(
                environment,
                "file_tree: no pillar_roots for a relative root_dir"
            );
            return Vec::new();
        };
        let mut found: Vec<PathBuf> = Vec::new();
        for below in roots.as_array().unwrap_or_default() {
            let Some(below) = below.as_str() else {
                continue;
            };
            let joined = Path::new(below).join(root);
            let directory = saltern_python::path::normpath(&joined.to_string_lossy()).into();
            if found.last() != Some(&directory) {
                found.push(directory);
            }
        }
        found
    }

    /// The data of one root.
    fn below(&self, root: &Path, call: &Call<'_>, budget: &mut Budget) -> Result<Value, TreeError> {
        let mut pillar = Value::Map(Vec::new());
        if !root.is_dir() {
            tracing::error!(root = %root.display(), "file_tree: root_dir is no directory");
            return Ok(pillar);
        }
        let Some(keep_newline) = &self.keep_newline else {
            tracing::error!("file_tree: keep_newline must be a boolean or a list of globs");
            return Ok(pillar);
        };
        let reader = Reader {
            tree: self,
            keep_newline,
            call,
        };
        let groups = root.join("nodegroups");
        for name in sorted_names(&groups).unwrap_or_default() {
            let configured = call.input.opts.get("nodegroups");
            let is_group = configured.is_some_and(|groups| groups.get(&name).is_some());
            if is_group && (call.input.in_nodegroup)(&name) {
                let data = reader.directory(&groups.join(&name), ".", 0, budget)?;
                pillar = merge(pillar, &data, false);
            }
        }
        let host = root.join("hosts").join(call.input.minion.as_str());
        if !host.is_dir() {
            if host.exists() {
                tracing::error!(path = %host.display(), "file_tree: this is no directory");
            }
            return Ok(pillar);
        }
        let data = reader.directory(&host, ".", 0, budget)?;
        Ok(merge(pillar, &data, false))
    }
}

impl Source for FileTree {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let mut budget = Budget {
            entries: ENTRIES,
            bytes: BYTES,
        };
        let mut pillar = Value::Map(Vec::new());
        for root in self.roots(call) {
            let data = self.below(&root, call, &mut budget)?;
            pillar = merge(pillar, &data, false);
        }
        Ok(pillar)
    }
}

/// Reads one tree.
struct Reader<'a> {
    tree: &'a FileTree,
    keep_newline: &'a KeepNewline,
    call: &'a Call<'a>,
}

impl Reader<'_> {
    /// A directory as a mapping; one that cannot be read is an empty one. `prefix` is its path
    /// below the top, which is `.` itself.
    fn directory(
        &self,
        directory: &Path,
        prefix: &str,
        depth: usize,
        budget: &mut Budget,
    ) -> Result<Value, TreeError> {
        if depth > DEPTH {
            return Err(TreeError::Depth(directory.to_owned()));
        }
        let names = sorted_names(directory).unwrap_or_else(|error| {
            tracing::error!(path = %directory.display(), %error, "file_tree: not readable");
            Vec::new()
        });
        let mut directories = Vec::new();
        let mut files = Vec::new();
        for name in names {
            budget.entries = budget.entries.checked_sub(1).ok_or(TreeError::Entries)?;
            let path = directory.join(&name);
            let below = if prefix == "." {
                name.clone()
            } else {
                format!("{prefix}/{name}")
            };
            if path.is_dir() {
                let value = if self.tree.follow || !path.is_symlink() {
                    self.directory(&path, &below, depth + 1, budget)?
                } else {
                    Value::Map(Vec::new())
                };
                directories.push((Value::from(name), value));
            } else if !path.is_file() {
                tracing::error!(path = %path.display(), "file_tree: not a regular file");
            } else {
                // Also at the top, where stock's patterns see `./name`.
                if let Some(value) = self.file(&path, &format!("{prefix}/{name}"), budget)? {
                    files.push((Value::from(name), value));
                }
            }
        }
        directories.extend(files);
        Ok(Value::Map(directories))
    }

    /// The value of a file; nothing if it cannot be read.
    fn file(
        &self,
        path: &Path,
        below: &str,
        budget: &mut Budget,
    ) -> Result<Option<Value>, TreeError> {
        let mut content = Vec::new();
        let read =
            open(path).and_then(|file| file.take(budget.bytes + 1).read_to_end(&mut content));
        if let Err(error) = read {
            tracing::error!(path = %path.display(), %error, "file_tree: not readable");
            return Ok(None);
        }
        budget.bytes = budget
            .bytes
            .checked_sub(content.len() as u64)
            .ok_or(TreeError::Bytes)?;
        if content.ends_with(b"\n") && !self.keep_newline.keeps(below) {
            content.pop();
        }
        match &self.tree.template {
            None => Ok(Some(Value::Bin(Bytes::from(content)))),
            Some(templates) => self.rendered(templates, path, content).map(Some),
        }
    }

    fn rendered(
        &self,
        templates: &Templates,
        path: &Path,
        content: Vec<u8>,
    ) -> Result<Value, TreeError> {
        let name = path.to_string_lossy();
        let text = String::from_utf8(content).map_err(|_| TreeError::Encoding(name.to_string()))?;
        let input = self.call.input;
        let has_shebang = text.starts_with("#!") && !text.starts_with("#!/");
        // Without a default, stock's pipeline is empty and gives nothing.
        let Some(default) = templates.default.clone().or(has_shebang.then(String::new)) else {
            return Ok(Value::Map(Vec::new()));
        };
        let renderers = Renderers {
            default,
            whitelist: templates.whitelist.clone(),
            blacklist: templates.blacklist.clone(),
            gpg: input.renderers.gpg.clone(),
        };
        let mut context = input.context.clone();
        context.set("sls", Value::from(""));
        context.set("saltenv", Value::from("base"));
        context.set("pillar", Value::Map(Vec::new()));
        Ok(render::render(&text, &name, &renderers, &context)?)
    }
}

impl KeepNewline {
    fn keeps(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Matching(patterns) => patterns.iter().any(|pattern| pattern.matches(path)),
        }
    }
}

fn pattern(node: &Node) -> Option<Pattern> {
    let text = match &node.value {
        NodeValue::Int(number) => number.to_string(),
        _ => node.as_str()?.to_owned(),
    };
    Pattern::glob(&text).ok()
}

/// The names in a directory, sorted. Names that are not UTF-8 cannot be keys and are left out.
fn sorted_names(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        match entry?.file_name().into_string() {
            Ok(name) => names.push(name),
            Err(name) => tracing::warn!(?name, "file_tree: the name is not UTF-8"),
        }
    }
    names.sort();
    Ok(names)
}
