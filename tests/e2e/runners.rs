//! Runner functions of our master beside stock's on the same site: of jobs ours answers from its
//! database, where stock's `salt-run` reads the files that our master mirrors; everything else both
//! read from the same caches and files.

use anyhow::{Context as _, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

#[test]
fn job_runners_of_3006_answer_as_stock() -> TestResult {
    compare(Release::V3006)
}

#[test]
fn job_runners_of_3007_answer_as_stock() -> TestResult {
    compare(Release::V3007)
}

#[test]
fn job_runners_of_3008_answer_as_stock() -> TestResult {
    compare(Release::V3008)
}

/// Questions; `{jid}` is the first job.
const QUESTIONS: &[&[&str]] = &[
    &["jobs.list_jobs"],
    &["jobs.list_jobs", "search_function=test.*,cmd.run"],
    &["jobs.list_jobs", "search_target=m*"],
    &["jobs.list_jobs", "search_target=[m1, other]"],
    &["jobs.list_jobs", "search_metadata={who: me}"],
    &["jobs.list_jobs", "start_time=2020, Mar 16 19:00"],
    &["jobs.list_jobs", "end_time=2020-03-16 19:00:00"],
    &["jobs.list_jobs_filter", "2"],
    &["jobs.list_job", "{jid}"],
    &["jobs.list_job", "20200101000000000000"],
    &["jobs.print_job", "{jid}"],
    &["jobs.lookup_jid", "{jid}"],
    &["jobs.lookup_jid", "{jid}", "missing=True"],
    &["jobs.lookup_jid", "20200101000000000000"],
    &["jobs.exit_success", "{jid}"],
    &["jobs.last_run", "function=test.echo"],
    &["jobs.last_run", "target=m1", "metadata={who: me}"],
    &["jobs.last_run", "function=no.such"],
];

fn compare(release: Release) -> TestResult {
    let configure = |config: &mut saltern_tests::Config| {
        // The minion answers, however busy the machine is, and nobody else is asked.
        config.set("timeout", 60);
        // Each question would become a job, and the next answers differ.
        config.set("runner_returns", false);
        config.set("job_cache_store_endtime", true);
    };
    Site::run(Server::Saltern(release), configure, |site| {
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        let mark = site.events().mark();
        let first = site.salt(&["m1", "cmd.run", "echo oops; exit 3", "--show-jid"])?;
        site.salt(&["m1", "test.echo", "grüße", "--metadata={who: me}"])?;
        let last = site.salt(&["-L", "m1,ghost", "test.ping", "--async"])?;
        site.events()
            .find_since(mark, "the last return", SOON, |event| {
                (event.tag.ends_with("/ret/m1") && event.data["fun"] == "test.ping").then_some(())
            })?;
        let jid = first.jid()?.to_owned();
        site.wait_until_mirrored(last.jid()?, "m1")?;
        let mut differences = Vec::new();
        for question in QUESTIONS {
            let words: Vec<String> = question
                .iter()
                .map(|word| word.replace("{jid}", &jid))
                .collect();
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ours = site.saltern(&[&["run", "--out", "json"], words.as_slice()].concat())?;
            words.push("--out=json");
            let stock = site.salt_run(&words)?;
            let (ours, stock) = (parsed(&ours.stdout)?, parsed(&stock.stdout)?);
            if ours != stock {
                differences.push(format!("{words:?}\nstock: {stock}\nours:  {ours}"));
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
        Ok(())
    })
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("no JSON: {text}"))
}

#[test]
fn data_and_file_runners_of_3006_answer_as_stock() -> TestResult {
    compare_data(Release::V3006)
}

#[test]
fn data_and_file_runners_of_3007_answer_as_stock() -> TestResult {
    compare_data(Release::V3007)
}

#[test]
fn data_and_file_runners_of_3008_answer_as_stock() -> TestResult {
    compare_data(Release::V3008)
}

/// Questions about what is kept of minions and about files: function, arguments without a name,
/// arguments with one. None changes what the next one finds.
fn data_questions() -> Vec<(&'static str, Value, Value)> {
    let plain = |fun: &'static str, arguments: Value| (fun, arguments, json!({}));
    vec![
        plain("cache.grains", json!(["m1"])),
        plain("cache.grains", json!(["nobody"])),
        plain("cache.grains", json!([])),
        plain("cache.pillar", json!([])),
        plain("cache.pillar", json!(["m1"])),
        plain("cache.mine", json!(["*"])),
        plain("cache.list", json!(["grains"])),
        plain("cache.list", json!(["minions/m1"])),
        plain("cache.fetch", json!(["minions/m1", "mine"])),
        plain("cache.fetch", json!(["mine", "m1"])),
        plain("cache.fetch", json!(["no/such", "thing"])),
        plain("cache.flush", json!(["no/such"])),
        plain("cache.store", json!(["of/mine", "key", {"a": [1, "zwei"]}])),
        plain("cache.fetch", json!(["of/mine", "key"])),
        plain("cache.clear_pillar", json!([])),
        (
            "cache.clear_git_lock",
            json!(["gitfs"]),
            json!({"nonsense": 1}),
        ),
        plain("pillar.show_top", json!([])),
        plain("pillar.show_top", json!(["m1"])),
        plain("pillar.show_top", json!(["m1", "other"])),
        plain("pillar.show_pillar", json!(["m1"])),
        plain("pillar.show_pillar", json!(["stranger"])),
        (
            "pillar.show_pillar",
            json!(["stranger"]),
            json!({"os": "Debian"}),
        ),
        (
            "pillar.show_pillar",
            json!(["m1"]),
            json!({"saltenv": "other"}),
        ),
        (
            "pillar.show_pillar",
            json!(["m1"]),
            json!({"pillarenv": "other"}),
        ),
        plain("pillar.show_pillar_cache", json!([])),
        plain("fileserver.file_list", json!([])),
        plain("fileserver.file_list", json!(["other"])),
        (
            "fileserver.file_list",
            json!([]),
            json!({"backend": "roots"}),
        ),
        (
            "fileserver.file_list",
            json!([]),
            json!({"backend": "nonsense"}),
        ),
        plain("fileserver.dir_list", json!([])),
        plain("fileserver.empty_dir_list", json!([])),
        plain("fileserver.symlink_list", json!([])),
        plain("fileserver.envs", json!([])),
        ("fileserver.envs", json!([]), json!({"sources": true})),
        plain("fileserver.lock", json!([])),
        plain("fileserver.clear_lock", json!([])),
        plain("fileserver.clear_cache", json!([])),
        plain("fileserver.update", json!([])),
        ("fileserver.update", json!([]), json!({"nonsense": 1})),
        plain("config.get", json!(["file_roots:base"])),
        plain("config.get", json!(["loop_interval"])),
        (
            "config.get",
            json!(["no:such"]),
            json!({"default": "nothing"}),
        ),
        plain("mine.get", json!(["m1", "test.ping"])),
        plain("mine.get", json!(["m1", "test.ping,no.such"])),
        plain("mine.get", json!(["nobody", "test.ping"])),
        (
            "test.arg",
            json!(["foo"]),
            json!({"bar": "baz", "list": [1, "zwei"]}),
        ),
        plain("test.metasyntactic", json!(["uk"])),
        plain("test.metasyntactic", json!(["de"])),
        plain("event.send", json!(["my/tag", {"a": 1}])),
        plain("git_pillar.update", json!([])),
        plain("error.error", json!([])),
    ]
}

fn compare_data(release: Release) -> TestResult {
    let configure = |config: &mut saltern_tests::Config| {
        // The minion answers, however busy the machine is, and nobody else is asked.
        config.set("timeout", 60);
    };
    Site::prepared(Server::Saltern(release), configure, |site| {
        files_and_pillars(site)?;
        site.start_master()?;
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        site.salt(&["m1", "mine.send", "test.ping"])?
            .expect_code(0)?;
        site.salt(&["m1", "saltutil.refresh_pillar", "wait=True", "timeout=150"])?
            .expect_code(0)?;
        let mut differences = Vec::new();
        let mut client = site.client()?;
        for (fun, arg, kwarg) in data_questions() {
            let low = json!({"fun": fun, "arg": arg, "kwarg": kwarg});
            let ours = said(client.call(&json!({ "runner": low }))?);
            let stock = said(client.call(&json!({ "own_runner": low }))?);
            if ours != stock {
                differences.push(format!("{low}\nstock: {stock}\nours:  {ours}"));
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
        modules_are_synced(site)
    })
}

/// The comparable part of a runner's return: of a failure only that it is one, because stock says
/// it with a traceback; of wrong arguments what is wrong with them.
fn said(value: Value) -> Value {
    let text = value.as_str().unwrap_or_default();
    if text.contains("Exception occurred") {
        return "a failure".into();
    }
    match text.find("\n\nUsage:") {
        Some(end) => text[..end].into(),
        None => value,
    }
}

fn files_and_pillars(site: &mut Site) -> Result<()> {
    let root = site.path("").display().to_string();
    let root = root.trim_end_matches('/');
    let both = |name: &str| format!("{{base: [{root}/{name}], other: [{root}/{name}-other]}}");
    site.config()
        .set("file_roots", both("salt"))
        .set("pillar_roots", both("pillar"))
        .set("extension_modules", format!("{root}/cache/extmods"));
    site.write_config()?;
    let write = |name: &str, text: &str| -> Result<()> {
        let path = site.path(name);
        std::fs::create_dir_all(path.parent().context("a file in a directory")?)?;
        Ok(std::fs::write(path, text)?)
    };
    write(
        "pillar/top.sls",
        "base:\n  'm*':\n    - common\n  'os:*':\n    - match: grain\n    - os\n",
    )?;
    write("pillar/common.sls", "name: größe\nlist: [1, zwei]\n")?;
    write("pillar/os.sls", "os: {{ grains.get('os', 'none') }}\n")?;
    write("pillar-other/top.sls", "other:\n  'm*': [only]\n")?;
    write("pillar-other/only.sls", "only: other\n")?;
    write("salt/top.sls", "base: {'*': [größe]}\n")?;
    write("salt/sub/deep.sls", "deep\n")?;
    write("salt/_runners/own.py", "def fun(): return 1\n")?;
    write("salt/_modules/sub/deep.py", "def fun(): return 2\n")?;
    write("salt-other/file", "other\n")?;
    std::fs::create_dir_all(site.path("salt/empty"))?;
    std::os::unix::fs::symlink("top.sls", site.path("salt/link"))?;
    Ok(())
}

/// Each master copies the site's modules into an empty directory; both say and write the same.
fn modules_are_synced(site: &mut Site) -> Result<()> {
    let extmods = site.path("cache/extmods");
    let mut answers = Vec::new();
    for is_ours in [true, false] {
        if extmods.exists() {
            std::fs::remove_dir_all(&extmods)?;
        }
        let run = match is_ours {
            true => site.saltern(&["run", "--out", "json", "saltutil.sync_all"])?,
            false => site.salt_run(&["saltutil.sync_all", "--out=json"])?,
        };
        let copied = std::fs::read(extmods.join("modules/sub/deep.py"))
            .with_context(|| format!("ours: {is_ours}: {}{}", run.stdout, run.stderr))?;
        ensure!(copied == b"def fun(): return 2\n", "{copied:?}");
        answers.push(parsed(&run.stdout)?);
    }
    ensure!(
        answers[0] == answers[1],
        "ours: {}\nstock: {}",
        answers[0],
        answers[1]
    );
    Ok(())
}

#[test]
fn stocks_own_client_runs_functions_here() -> TestResult {
    let release = Release::V3008;
    Site::run(
        Server::Saltern(release),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Stock(release))])?;
            site.salt(&["m1", "test.ping"])?;
            let mark = site.events().mark();
            let mut client = site.client()?;
            let mut run = |argument: &str| {
                let low = json!({"fun": "jobs.list_jobs", "arg": [argument]});
                client.call(&json!({ "runner": low }))
            };
            let answer = run("search_function=test.ping")?;
            let jobs = answer.as_object().context("jobs by their jids")?;
            ensure!(jobs.len() == 1, "{answer}");
            let end = site
                .events()
                .find_since(mark, "the end of the call", SOON, |event| {
                    event.tag.starts_with("salt/run/").then(|| event.clone())
                })?;
            ensure!(end.data["fun"] == "runner.jobs.list_jobs", "{}", end.data);
            // The call itself is kept as a job of the master.
            wait_until("the call to be kept", SOON, || {
                let kept = run("search_function=runner.*").ok()?;
                (!kept.as_object()?.is_empty()).then_some(())
            })?;
            let unknown = site.saltern(&["run", "no.such"])?;
            ensure!(unknown.code == Some(1), "{:?}", unknown.code);
            ensure!(unknown.stdout.contains("no.such"), "{}", unknown.stdout);
            Ok(())
        },
    )
}
