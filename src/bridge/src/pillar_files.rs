//! Finds files of `pillar_roots` whose first line names a renderer that only Python has.
//!
//! For the check of a configuration: nothing is rendered, a file is not read beyond its first line,
//! and links and roots with wildcards are skipped.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use saltern_config::yaml::Node;
use saltern_config::{MasterConfig, is_built_in_renderer};

/// Files and directories that are looked at.
const MAX_ENTRIES: usize = 20_000;
/// Files that are named.
const MAX_NAMED: usize = 100;
/// Bytes of a file that are read.
const FIRST_LINE: u64 = 256;

/// The pillar files that need Python, sorted, each with its renderers; the first hundred that are
/// found among so many entries of the roots.
pub fn python_pillar_files(config: &MasterConfig) -> Vec<(PathBuf, Vec<String>)> {
    let roots = config.pillar_roots().as_map();
    let roots = roots.into_iter().flat_map(|map| map.iter());
    let roots = roots.flat_map(|(_, entry)| entry.value.as_seq().unwrap_or_default());
    let mut places: Vec<PathBuf> = roots.filter_map(Node::as_str).map(PathBuf::from).collect();
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    while let Some(place) = places.pop() {
        let Ok(entries) = fs::read_dir(place) else {
            continue;
        };
        for entry in entries.flatten() {
            if left == 0 || found.len() >= MAX_NAMED {
                places.clear();
                break;
            }
            left -= 1;
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => places.push(path),
                Ok(kind) if kind.is_file() && path.extension().is_some_and(|end| end == "sls") => {
                    let renderers = foreign_renderers(&path);
                    if !renderers.is_empty() {
                        found.push((path, renderers));
                    }
                }
                _ => {}
            }
        }
    }
    found.sort();
    // Environments may share a root.
    found.dedup();
    found
}

/// The renderers of a file that are not built in.
fn foreign_renderers(path: &Path) -> Vec<String> {
    let mut read = Vec::new();
    // A file that cannot be read is reported when it is rendered.
    let _ = File::open(path).map(|file| file.take(FIRST_LINE).read_to_end(&mut read));
    let text = String::from_utf8_lossy(&read);
    let line = text.lines().next().unwrap_or_default();
    let Some(pipeline) = line.strip_prefix("#!").filter(|it| !it.starts_with('/')) else {
        return Vec::new();
    };
    let stages = pipeline.split('|');
    let names = stages.filter_map(|stage| stage.split_whitespace().next());
    let foreign = names.filter(|name| !is_built_in_renderer(name));
    foreign.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use saltern_config::load_master;

    use super::*;

    #[test]
    fn files_whose_first_line_names_other_renderers_are_found() {
        let top = tempfile::tempdir().expect("a directory");
        let root = top.path().join("pillar");
        let conf = format!(
            "root_dir: {0}\npillar_roots: {{base: ['{1}', /no/such], dev: ['{1}/deep']}}\n",
            top.path().display(),
            root.display()
        );
        fs::create_dir_all(root.join("deep/er")).expect("it can be made");
        fs::write(top.path().join("master"), conf).expect("it can be written");
        for (name, text) in [
            ("a.sls", "#!py\ndef run():\n    return {}\n"),
            ("b.sls", "a: '#!py'\n"),
            ("c.sls", "#!/usr/bin/py\n"),
            ("d.sls", "#!jinja|yaml\n"),
            ("e.txt", "#!py\n"),
            ("deep/er/f.sls", "#! mako foo|yaml | wempy\r\n"),
        ] {
            fs::write(root.join(name), text).expect("it can be written");
        }
        std::os::unix::fs::symlink(&root, root.join("deep/loop")).expect("it is new");
        let loaded = load_master(top.path());
        let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
        let found = python_pillar_files(&config);
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let expected: Vec<(PathBuf, Vec<String>)> = vec![
            (root.join("a.sls"), names(&["py"])),
            (root.join("deep/er/f.sls"), names(&["mako", "wempy"])),
        ];
        assert_eq!(found, expected);
    }
}
