//! gitfs and the external pillar `git` beside stock's, which use GitPython, over the same
//! repositories and the same configuration.
//! What is known to differ stands in the `DIFFERENCES.md` of the two parts.

mod pillar;
mod remotes;
mod repository;

use std::fs;
use std::path::{Path, PathBuf};

use saltern_base::clock::Clock;
use saltern_config::{MasterConfig, load_master};
use saltern_content::files::FileServer;
use serde_json::{Value as Json, json};

use crate::files_stock::{as_json, ask_us, comparable, list};
use repository::{Repository, What};

fn ask_stock(steps: &Json) -> Vec<Vec<Json>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gitfs_stock/stock.py");
    let answer = saltern_stock::answer(saltern_stock::NEWEST, script, &steps.to_string());
    serde_json::from_slice(&answer).unwrap()
}

/// Writes the configuration of a master that lives in `top`.
fn configure(top: &Path, config: &str) -> PathBuf {
    fs::create_dir_all(top).unwrap();
    let at = top.to_str().unwrap();
    let conf = top.join("master");
    let text = format!(
        "root_dir: {at}\ncachedir: {at}/cache\npki_dir: {at}/pki\nsock_dir: {at}/run\n\
         conf_file: {at}/master\nlog_file: {at}/log\n\
         gitfs_provider: gitpython\ngit_pillar_provider: gitpython\n{config}"
    );
    fs::write(&conf, text).unwrap();
    conf
}

fn load(conf: &Path) -> MasterConfig {
    let loaded = load_master(conf);
    loaded
        .unwrap_or_else(|error| panic!("{} is no good: {error}", conf.display()))
        .config
}

fn server(conf: &Path) -> FileServer {
    FileServer::new(&load(conf), Clock::system()).unwrap()
}

const PREFIXES: &[&str] = &["", "web", "/we", "mnt/web"];

const PATHS: &[&str] = &[
    "",
    ".",
    "..",
    "one.sls",
    "/one.sls",
    "./one.sls",
    "web",
    "web/init.sls",
    "web//init.sls",
    "web/../one.sls",
    "web/sub/../init.sls",
    "../one.sls",
    "web/sub/deep.txt",
    "run.sh",
    "empty",
    "binary",
    "link",
    "absolute",
    "up/link",
    "chain",
    "loop",
    "outside",
    "to_dir",
    "to_dir/init.sls",
    "dangling",
    "ünï",
    "only_dev",
    "only_two",
    "init.sls",
    "sub/deep.txt",
    "mnt/one.sls",
    "mnt/web/init.sls",
    "mnt/x/web/init.sls",
    "mnt",
    "mnt/",
    "mnt//one.sls",
    "mntone.sls",
    "one.sls?saltenv=dev",
    "one.sls?saltenv=none",
    "|one.sls",
    "salt://one.sls",
];

/// The repositories that all cases use.
struct Site {
    directory: tempfile::TempDir,
    one: Repository,
    two: Repository,
    /// A commit that no ref names.
    commit: String,
}

fn site() -> Site {
    let directory = tempfile::tempdir().unwrap();
    let one = Repository::new(directory.path().join("one"));
    let commit = one.commit("master", &[("one.sls", What::File("first\n"))]);
    one.commit(
        "master",
        &[
            ("one.sls", What::File("of master\n")),
            ("web/init.sls", What::File("web\n")),
            (
                "web/sub/deep.txt",
                What::File("deep text, longer than a few bytes\n"),
            ),
            ("run.sh", What::Program("#!/bin/sh\n")),
            ("empty", What::File("")),
            ("binary", What::File("\u{0}\u{1}\n")),
            ("link", What::Link("web/init.sls")),
            ("absolute", What::Link("/web/init.sls")),
            ("up/link", What::Link("../one.sls")),
            ("chain", What::Link("link")),
            ("loop", What::Link("loop")),
            ("outside", What::Link("../../etc/passwd")),
            ("to_dir", What::Link("web")),
            ("dangling", What::Link("nowhere")),
            ("ünï", What::File("ü\n")),
        ],
    );
    one.git(&["tag", "v1", &commit]);
    one.git(&["tag", "--annotate", "--message", "t", "v2", "master"]);
    one.commit(
        "dev",
        &[
            ("one.sls", What::File("of dev\n")),
            ("only_dev", What::File("dev\n")),
            ("ünï", What::Gone),
        ],
    );
    one.commit("feature/x", &[("one.sls", What::File("of a feature\n"))]);
    let two = Repository::new(directory.path().join("two"));
    two.commit(
        "main",
        &[
            ("one.sls", What::File("of two\n")),
            ("only_two", What::File("two\n")),
            ("web/init.sls", What::File("web of two\n")),
        ],
    );
    Site {
        directory,
        one,
        two,
        commit,
    }
}

/// Configurations, with `{one}` and `{two}` for the URLs and `{commit}` for the commit.
const CONFIGS: &[&str] = &[
    "gitfs_remotes: ['{one}']",
    "gitfs_remotes: ['{one}', '{two}']\ngitfs_base: main",
    "gitfs_remotes:\n- '{one}':\n  - root: web\n- '{two}':\n  - base: main\n  - mountpoint: 'salt://mnt/'",
    "gitfs_remotes:\n- '{one}':\n  - mountpoint: mnt/x\n  - root: ./\n",
    "gitfs_remotes:\n- '{one}':\n  - root: none\n- '{two}':\n  - fallback: main",
    "gitfs_remotes: ['{one}']\ngitfs_fallback: master\ngitfs_root: web/\ngitfs_mountpoint: mnt",
    "gitfs_remotes:\n- '{one}':\n  - saltenv_whitelist: 'base,d*'\n- '{two}':\n  - saltenv_blacklist: [dev]",
    "gitfs_remotes: ['{one}']\ngitfs_saltenv_blacklist: ['v.*', base]",
    "gitfs_remotes: ['{one}']\ngitfs_ref_types: [tag]",
    "gitfs_remotes: ['{one}']\ngitfs_ref_types: [branch, sha]",
    "gitfs_remotes: ['{one}']\ngitfs_base: '{commit}'",
    "gitfs_remotes: ['{one}']\ngitfs_disable_saltenv_mapping: true\ngitfs_saltenv:\n\
     - qa:\n  - ref: dev\n  - root: web\n- none:\n  - ref: feature/x",
    "gitfs_remotes:\n- '{one}':\n  - saltenv:\n    - qa:\n      - ref: dev\n      - mountpoint: 'salt://mnt'\n    - base:\n      - ref: dev\n    - v1:\n      - root: web\ngitfs_saltenv:\n- qa:\n  - ref: v1\n- master:\n  - ref: master\n",
    "gitfs_remotes:\n- '{one}':\n  - all_saltenvs: dev\n- '{two}':\n  - name: second\n  - base: main",
    "gitfs_remotes:\n- '{one}':\n  - name: a\n- '{one}':\n  - name: b\n  - mountpoint: mnt\n  - base: dev",
    "gitfs_remotes: ['{one}']\ngitfs_refspecs: ['+refs/heads/dev:refs/remotes/origin/dev']",
    "gitfs_remotes: ['{two}']\nfileserver_backend: [roots, gitfs]\nfile_roots: {base: ['{one_path}']}\ngitfs_base: main",
    "gitfs_remotes: ['{two}']\nfileserver_backend: [git, roots]\nfile_roots: {base: ['{one_path}'], dev: ['{one_path}/web']}\ngitfs_base: main",
];

fn environments(commit: &str) -> Vec<String> {
    let named = [
        "base",
        "master",
        "main",
        "dev",
        "feature/x",
        "v1",
        "v2",
        "qa",
        "none",
    ];
    let mut all: Vec<String> = named.iter().map(ToString::to_string).collect();
    all.extend([
        commit.to_owned(),
        commit[..8].to_owned(),
        "abcdef12".to_owned(),
    ]);
    all
}

/// One in how many paths is asked for in each environment of each configuration, and one in how many
/// environments each external pillar. The first one moves on with both, so that every two of a path, an
/// environment and a configuration meet. `tests/run.sh` has the share of each tier.
fn share() -> usize {
    let given = std::env::var("SALTERN_GITFS_SHARE").ok();
    given.map_or(3, |text| {
        text.parse().expect("SALTERN_GITFS_SHARE is a number")
    })
}

/// The calls for the configuration with this index.
fn calls(index: usize, commit: &str) -> Vec<Json> {
    let mut calls = vec![json!(["file_envs"])];
    for (number, saltenv) in environments(commit).iter().enumerate() {
        for prefix in PREFIXES {
            for list in [
                "file_list",
                "file_list_emptydirs",
                "dir_list",
                "symlink_list",
            ] {
                calls.push(json!([list, saltenv, prefix]));
            }
        }
        let asked = PATHS.iter().enumerate();
        let asked = asked.filter(|(at, _)| (at + number + index).is_multiple_of(share()));
        for (_, path) in asked {
            for function in ["file_find", "file_hash_and_stat"] {
                calls.push(json!([function, path, saltenv]));
            }
            for (loc, gzip) in [(0, 0), (3, 9)] {
                calls.push(json!(["serve_file", path, saltenv, loc, gzip]));
            }
        }
    }
    calls
}

fn written(site: &Site, config: &str) -> String {
    let config = config
        .replace("{one}", &site.one.url())
        .replace("{two}", &site.two.url())
        .replace("{one_path}", site.one.path.to_str().unwrap())
        .replace("{commit}", &site.commit);
    if config.contains("fileserver_backend") {
        config
    } else {
        format!("fileserver_backend: [gitfs]\n{config}")
    }
}

/// Whether ours differs on purpose, and stock's answer is therefore not compared.
fn is_known(call: &Json, ours: &Json, stock: &Json, commit: &str) -> bool {
    let text = |at: usize| call[at].as_str().unwrap_or_default();
    let failed = stock["exception"].as_str().unwrap_or_default();
    let nothing = [
        json!({"path": "", "rel": ""}),
        json!({"data": {"hex": ""}, "dest": ""}),
        json!(["", null]),
    ];
    // Stock fails for a path that leads out; here there is no such file.
    (failed.starts_with("SaltValidationError") && text(1) == ".." && nothing.contains(ours))
        // Stock fails for the name of a commit that one of the remotes does not have.
        || (failed.contains("could not be resolved") && (text(1) == commit || text(2) == commit))
        // Stock keeps the digest of another environment's file in the place of this one's.
        || (text(0) == "file_hash_and_stat" && text(1).starts_with("one.sls?saltenv="))
}

#[test]
fn gitfs_answers_as_stock() {
    let site = site();
    let mut steps = Vec::new();
    for (index, config) in CONFIGS.iter().enumerate() {
        let top = site.directory.path().join(format!("master{index}"));
        let conf = configure(&top, &written(&site, config));
        steps.push(json!({"config": conf, "calls": calls(index, &site.commit)}));
    }
    let answers = ask_stock(&json!(steps));
    let (mut compared, mut different) = (0, Vec::new());
    for (step, answers) in steps.iter().zip(answers) {
        let conf = PathBuf::from(step["config"].as_str().unwrap());
        let server = server(&conf);
        assert!(server.refresh_remotes(), "nothing was fetched");
        for (call, stock) in step["calls"].as_array().unwrap().iter().zip(answers) {
            let function = call[0].as_str().unwrap();
            let ours = comparable(function, ask_us(&server, call));
            compared += 1;
            if is_known(call, &ours, &stock, &site.commit) {
                continue;
            }
            let stock = comparable(function, stock);
            if ours != stock {
                different.push(format!(
                    "{}: {call}\n  ours  {ours}\n  stock {stock}",
                    conf.display()
                ));
            }
        }
    }
    assert!(compared > 30_000 / share(), "{compared}");
    assert!(
        different.is_empty(),
        "{} of {compared} answers differ:\n{}",
        different.len(),
        different
            .iter()
            .take(40)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
}
