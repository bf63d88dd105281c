//! Python modules of the site, run by our master beside stock's: pillars, functions of the master,
//! and both when the Python helper is killed or there is none.

use std::fmt::Debug;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::Value;

/// The master's own modules and pillars. A function that is asked to `hang` writes its process id
/// first, so that the test can end it.
const TREE: &[(&str, &str)] = &[
    (
        "ext/modules/custom.py",
        "import os, sys, time\n\
         import salt.exceptions\n\
         def hello(name, mark='!'):\n    \
             print('this goes to the log and nowhere else')\n    \
             return 'hello ' + name + ' of ' + __grains__['id'] + mark\n\
         def refuse():\n    \
             raise salt.exceptions.CommandExecutionError('not today')\n\
         def hang(path):\n    \
             with open(path, 'w') as out:\n        \
                 out.write(str(os.getpid()) + '\\n')\n    \
             time.sleep(600)\n\
         def loaded():\n    \
             return [name for name in sys.modules if name.startswith('salt.loaded.int.module.')]\n",
    ),
    (
        "ext/modules/other_file.py",
        "__virtualname__ = 'other' + '_name'\n\
         def __virtual__():\n    \
             return __virtualname__\n\
         def hello():\n    \
             return 'hello'\n",
    ),
    (
        "ext/pillar/site_pillar.py",
        "def ext_pillar(minion_id, pillar, first, second=0):\n    \
             return {'from_ext': {'id': minion_id, 'args': [first, second],\n                         \
                     'seen': sorted(pillar), 'os': __grains__['kernel'],\n                         \
                     'tuple': (1, 2), 'none': None}}\n",
    ),
    (
        "ext/runners/site_runner.py",
        "import os, time\n\
         def add(a, b=1):\n    \
             __jid_event__.fire_event({'message': 'adding'}, 'progress')\n    \
             return {'sum': a + b, 'as': __user__, 'id': __opts__['id']}\n\
         def fail():\n    \
             raise ValueError('it cannot be done')\n\
         def hang(path, parent=False):\n    \
             with open(path, 'w') as out:\n        \
                 out.write(str(os.getppid() if parent else os.getpid()) + '\\n')\n    \
             time.sleep(600)\n",
    ),
    (
        "ext/wheel/site_wheel.py",
        "def where():\n    return __opts__['pki_dir']\n",
    ),
    (
        "states/orch.sls",
        "first:\n  salt.function:\n    - name: test.echo\n    - tgt: '*'\n    - arg: [hello]\n\
         second:\n  salt.state:\n    - tgt: '*'\n    - sls: [greet]\n    - pillar: {who: you}\n    \
         - require: [{salt: first}]\n\
         third:\n  salt.runner:\n    - name: site_runner.add\n    - a: 40\n    - b: 2\n    \
         - require: [{salt: second}]\n",
    ),
    (
        "states/greet.sls",
        "{{ pillar['who'] }}_{{ grains['id'] }}:\n  test.succeed_with_changes: []\n",
    ),
    (
        "ext/tops/site_tops.py",
        "def top(**kwargs):\n    \
             options = __opts__['master_tops']['site_tops']\n    \
             return {'base': [options['state'], kwargs['grains']['id'] + '_' + kwargs['opts']['id']]}\n",
    ),
    (
        "pillar/top.sls",
        "base:\n  '*':\n    - by_py\n    - by_template\n    - by_objects\n    - by_mako\n",
    ),
    (
        "pillar/by_py.sls",
        "#!py\n\
         def run():\n    \
             return {'by_py': {'id': __grains__['id'], 'sls': __sls__, 'env': __env__,\n            \
                     'echo': __salt__['test.echo']('e'), 'n': [1, 2.5, True, None],\n            \
                     'opts_id': __opts__['id'], 'pillar': dict(__pillar__)}}\n",
    ),
    (
        "pillar/by_template.sls",
        "custom: {{ salt['custom.hello']('jinja', mark='?') }}\n\
         attribute: {{ salt.custom.hello('dots') }}\n\
         known: {{ 'custom.hello' in salt }} {{ 'custom.nothing' in salt }}\n",
    ),
    (
        "pillar/by_mako.sls",
        "#!mako|yaml\n\
         by_mako:\n\
         % for number in range(3):\n  \
           - ${grains['id']} ${number}\n\
         % endfor\n",
    ),
    (
        "pillar/by_objects.sls",
        "#!pyobjects\nFile.managed('x', contents=grains('id'))\n",
    ),
];

fn write_tree(site: &Site) -> Result<()> {
    for (name, text) in TREE {
        let path = site.path(name);
        fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// Both masters with the same modules; ours with the Python of the release.
fn configure(server: Server) -> impl FnOnce(&mut Config) {
    move |config| {
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        config
            .set("extension_modules", format!("{root}/ext"))
            .set("file_roots", format!("{{base: [{root}/states]}}"))
            .set("pillar_roots", format!("{{base: [{root}/pillar]}}"))
            .set("ext_pillar", "[{site_pillar: [one, {two: 2}]}]")
            .set("master_tops", "{site_tops: {state: common}}")
            // A minion gives its answer when the helper has started, which takes its time on a busy machine.
            .set("timeout", 60)
            .set("gather_job_timeout", 60);
        if server.is_ours() {
            let python = server.release().program("python3");
            config
                .set("python_bridge", python.display())
                .set("python_bridge_timeout", PATIENCE - 20)
                .set("saltern_pillar_timeout", PATIENCE - 10);
        }
    }
}

/// Seconds for a pillar: all of Salt's modules are loaded for it, which takes its time on a busy machine.
const PATIENCE: u64 = 170;

/// Starts a minion that waits for its pillar: with stock's minute it asks anew for one that comes later, and never starts.
fn bring_up(site: &mut Site, release: Release) -> Result<()> {
    let kind = MinionKind::Stock(release);
    site.prepare_minion("m1", kind, |config| {
        config.set("request_channel_timeout", PATIENCE);
    })?;
    site.bring_up(&[("m1", kind)])
}

/// Asks a site of stock's master and one of ours the same; the answers have to be equal.
fn stock_and_ours_agree<T: PartialEq + Debug>(
    release: Release,
    ask: impl Fn(&mut Site) -> Result<T>,
) -> TestResult {
    let mut answers = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        Site::run(server, configure(server), |site| {
            write_tree(site)?;
            answers.push(ask(site)?);
            Ok(())
        })
        .map_err(Failure::into_error)?;
    }
    let [stock, ours] =
        <[_; 2]>::try_from(answers).map_err(|_| anyhow::anyhow!("two masters were asked"))?;
    if stock != ours {
        let version = release.version();
        Err(anyhow::anyhow!(
            "{version}\n--- stock\n{stock:#?}\n--- ours\n{ours:#?}"
        ))?;
    }
    Ok(())
}

#[test]
fn pillars_that_need_python_are_those_of_stock_3006() -> TestResult {
    pillars_that_need_python_are_those_of_stock(Release::V3006)
}

#[test]
fn pillars_that_need_python_are_those_of_stock_3007() -> TestResult {
    pillars_that_need_python_are_those_of_stock(Release::V3007)
}

#[test]
fn pillars_that_need_python_are_those_of_stock_3008() -> TestResult {
    pillars_that_need_python_are_those_of_stock(Release::V3008)
}

fn pillars_that_need_python_are_those_of_stock(release: Release) -> TestResult {
    stock_and_ours_agree(release, |site| {
        bring_up(site, release)?;
        let pillar = pillar_of(site, "m1")?;
        // What the test is about is there at all.
        for name in ["by_py", "by_mako", "custom", "from_ext"] {
            ensure!(pillar.get(name).is_some(), "{name} is missing: {pillar:#}");
        }
        let top = site.salt(&["m1", "state.show_top", "--static", "--out=json"])?;
        ensure!(top.stdout.contains("m1_m1"), "no states by Python: {top}");
        Ok((pillar, top.stdout))
    })
}

/// The pillar, as it is: 3008 hides values from the command line unless it is asked not to.
fn pillar_of(site: &Site, id: &str) -> Result<Value> {
    let mut arguments = vec![id, "pillar.items", "--static", "--out=json"];
    if site.server().release() == Release::V3008 {
        arguments.push("unmask=True");
    }
    let run = site.salt(&arguments)?;
    run.expect_code(0)?;
    let all: Value = serde_json::from_str(&run.stdout)?;
    Ok(all.get(id).cloned().unwrap_or_default())
}

/// Names by attribute, with what a template says of each: the site's own modules, one of them named
/// by what its file computes; Salt's, named by its file, by a part of that, and by a text in it
/// (`shadow` has a file for each system); names of nothing.
const BY_ATTRIBUTE: &str = "\
    own: {{ salt.custom.hello('dots') }}\n\
    computed: {{ salt.other_name.hello() }}\n\
    by_file: {{ salt.jinja is defined }} {{ salt.jinja.nothing is defined }}\n\
    by_part: {{ salt.localemod is defined }} {{ salt.locale is defined }}\n\
    by_text: {{ salt.lowpkg is defined }} {{ salt.shadow is defined }}\n\
    nothing: {{ salt.nothing_at_all is defined }} {{ 'custom.nothing' in salt }} {{ 'no.thing' in salt }}\n";

#[test]
fn module_by_attribute_loads_itself_and_not_all_of_salts_3006() -> TestResult {
    module_by_attribute_loads_itself_and_not_all_of_salts(Release::V3006)
}

#[test]
fn module_by_attribute_loads_itself_and_not_all_of_salts_3008() -> TestResult {
    module_by_attribute_loads_itself_and_not_all_of_salts(Release::V3008)
}

fn module_by_attribute_loads_itself_and_not_all_of_salts(release: Release) -> TestResult {
    stock_and_ours_agree(release, |site| {
        let by_template = if site.server().is_ours() {
            format!("{BY_ATTRIBUTE}loaded: {{{{ salt.custom.loaded() | length }}}}\n")
        } else {
            BY_ATTRIBUTE.to_owned()
        };
        // Other renderers load all modules.
        fs::write(
            site.path("pillar/top.sls"),
            "base:\n  '*':\n    - by_template\n",
        )?;
        fs::write(site.path("pillar/by_template.sls"), by_template)?;
        bring_up(site, release)?;
        let mut pillar = pillar_of(site, "m1")?;
        if site.server().is_ours() {
            let all = pillar.as_object_mut().context("a pillar is a mapping")?;
            let loaded = all.remove("loaded").and_then(|count| count.as_u64());
            ensure!(
                loaded.is_some_and(|count| count < 60),
                "{loaded:?} of {all:#?}"
            );
        }
        // It names what is in the pillar, and the count is there for ours alone.
        pillar["from_ext"] = Value::Null;
        ensure!(pillar["own"] == "hello dots of m1!", "{pillar:#}");
        Ok(pillar)
    })
}

#[test]
fn killed_helper_fails_one_pillar_only() -> TestResult {
    let release = Release::V3008;
    let server = Server::Saltern(release);
    let configure = |config: &mut Config| {
        configure(server)(config);
        config.set("pillar_safe_render_error", false);
    };
    Site::run(server, configure, |site| {
        write_tree(site)?;
        let pid_file = site.path("pid");
        let hang = format!(
            "x: {{{{ salt['custom.hang']('{}') }}}}\n",
            pid_file.display()
        );
        bring_up(site, release)?;
        fs::write(site.path("pillar/by_template.sls"), hang)?;
        site.announce("a pillar SLS does not render");
        site.announce("the pillar has an error");
        site.step("kill the helper while it works");
        let errors = std::thread::scope(|scope| {
            let asking = scope.spawn(|| pillar_of(site, "m1"));
            let pid = wait_until("the helper to hang", SOON, || {
                fs::read_to_string(&pid_file)
                    .ok()?
                    .trim()
                    .parse::<i32>()
                    .ok()
            });
            if let Some(pid) = pid
                .as_ref()
                .ok()
                .and_then(|pid| rustix::process::Pid::from_raw(*pid))
            {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
            }
            pid?;
            match asking.join() {
                Ok(pillar) => Ok(pillar?.get("_errors").cloned().unwrap_or_default()),
                Err(_) => bail!("the command panicked"),
            }
        })?;
        ensure!(
            errors
                .to_string()
                .contains("the Python helper that ran the function"),
            "{errors:#}"
        );
        site.step("the next one works");
        for (name, text) in TREE {
            fs::write(site.path(name), text)?;
        }
        let pillar = pillar_of(site, "m1")?;
        ensure!(pillar["custom"] == "hello jinja of m1?", "{pillar:#}");
        Ok(())
    })
}

#[test]
fn without_python_the_errors_name_module_and_option() -> TestResult {
    let release = Release::V3008;
    let server = Server::Saltern(release);
    let configure = |config: &mut Config| {
        configure(server)(config);
        config.set("python_bridge", false);
    };
    Site::run(server, configure, |site| {
        site.announce("ext_pillar failed");
        site.announce("a pillar SLS does not render");
        site.announce("the pillar has an error");
        site.announce("can only be run by Python");
        site.announce("is not built in, only");
        write_tree(site)?;
        bring_up(site, release)?;
        let pillar = pillar_of(site, "m1")?;
        let errors = pillar["_errors"].to_string();
        ensure!(
            errors.contains("site_pillar") && errors.contains("python_bridge"),
            "{pillar:#}"
        );
        let log = fs::read_to_string(site.path("log/master.out"))?;
        for what in ["the renderer \\\"py\\\"", "custom.hello", "python_bridge"] {
            ensure!(
                log.contains(what) || log.contains(&what.replace('\\', "")),
                "{what}: {log}"
            );
        }
        Ok(())
    })
}

#[test]
fn python_runners_match_stock_3006() -> TestResult {
    python_runners_match_stock(Release::V3006)
}

#[test]
fn python_runners_match_stock_3007() -> TestResult {
    python_runners_match_stock(Release::V3007)
}

#[test]
fn python_runners_match_stock_3008() -> TestResult {
    python_runners_match_stock(Release::V3008)
}

fn python_runners_match_stock(release: Release) -> TestResult {
    stock_and_ours_agree(release, |site| {
        bring_up(site, release)?;
        let run = run(site, &["site_runner.add", "40", "b=2"])?;
        ensure!(run["sum"] == 42, "{run:#}");
        let mut orchestrated = self::run(site, &["state.orchestrate", "orch"])?;
        strip(&mut orchestrated);
        let text = orchestrated.to_string();
        ensure!(
            text.contains("you_m1") && text.contains("42"),
            "{orchestrated:#}"
        );
        if site.server().is_ours() {
            events_are_told(site)?;
            let failed = site.saltern(&["run", "--out", "json", "site_runner.fail"])?;
            ensure!(failed.code == Some(1), "{failed}");
            let expected = "runner site_runner.fail: ValueError: it cannot be done";
            ensure!(failed.stdout.contains(expected), "{failed}");
        }
        Ok((run, orchestrated))
    })
}

/// Return of a function of the master: by stock's `salt-run` of a stock master, which runs it
/// itself, or by ours.
fn run(site: &Site, words: &[&str]) -> Result<Value> {
    let run = match site.server().is_ours() {
        true => site.saltern(&[&["run", "--out", "json"], words].concat())?,
        false => site.salt_run(&[words, &["--out=json"]].concat())?,
    };
    run.expect_code(0)?;
    // Stock also prints what modules print and the progress events of the function.
    let start = run.stdout.find('{').unwrap_or_default();
    let documents = serde_json::Deserializer::from_str(&run.stdout[start..]).into_iter::<Value>();
    let last = documents
        .last()
        .with_context(|| format!("no JSON: {run}"))?;
    last.with_context(|| format!("no JSON: {run}"))
}

/// Takes out what differs from one run to the next, and what stock's outputter wraps around it.
fn strip(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            for name in ["duration", "start_time", "__jid__", "outputter", "retcode"] {
                entries.remove(name);
            }
            if entries.len() == 1
                && let Some(inner) = entries.get("data")
            {
                *value = inner.clone();
                return strip(value);
            }
            entries.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// The events of a call, from start to end in order, are those of a native one.
fn events_are_told(site: &Site) -> Result<()> {
    let mark = site.events().mark();
    run(site, &["site_runner.add", "7"])?;
    let end = site
        .events()
        .find_since(mark, "the end of the call", SOON, |event| {
            (event.tag.ends_with("/ret") && event.data["fun_args"][0] == 7)
                .then(|| event.tag.clone())
        })?;
    let call = end.trim_end_matches("ret");
    let tags = std::cell::RefCell::new(Vec::new());
    site.events()
        .find_since(mark, "its events", SOON, |event| {
            let what = event.tag.strip_prefix(call)?;
            tags.borrow_mut().push(what.to_owned());
            (what == "ret").then_some(())
        })?;
    let tags = tags.into_inner();
    ensure!(tags == ["new", "progress", "ret"], "{tags:?}");
    Ok(())
}

#[test]
fn killed_or_hung_runner_affects_no_other_call() -> TestResult {
    let release = Release::V3008;
    let server = Server::Saltern(release);
    let configure = |config: &mut Config| {
        configure(server)(config);
        config.set("python_bridge_runners", 1);
    };
    Site::run(server, configure, |site| {
        write_tree(site)?;
        for (step, parent) in [("its own process", "False"), ("the helper", "True")] {
            site.step(step);
            let pid_file = site.path("pid");
            let (path, parent) = (
                format!("path={}", pid_file.display()),
                format!("parent={parent}"),
            );
            let words = ["run", "--out", "json", "site_runner.hang", &path, &parent];
            let asked: &Site = site;
            let answer = std::thread::scope(|scope| {
                let asking = scope.spawn(|| asked.saltern(&words));
                let pid = wait_until("the runner to hang", SOON, || {
                    fs::read_to_string(&pid_file)
                        .ok()?
                        .trim()
                        .parse::<i32>()
                        .ok()
                });
                // The one place for Python is taken; native functions and pillars have others.
                let native = asked.saltern(&["run", "--out", "json", "jobs.list_jobs"]);
                if let Some(pid) = pid
                    .as_ref()
                    .ok()
                    .and_then(|pid| rustix::process::Pid::from_raw(*pid))
                {
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
                }
                pid?;
                native?.expect_code(0)?;
                match asking.join() {
                    Ok(answer) => answer,
                    Err(_) => bail!("the command panicked"),
                }
            })?;
            ensure!(answer.stdout.contains("signal 9"), "{answer}");
            fs::remove_file(&pid_file)?;
            let next = run(site, &["site_runner.add", "1"])?;
            ensure!(next["sum"] == 2, "{next:#}");
        }
        site.step("the master stops while one hangs");
        // Whether its end is stored or it is reported lost depends on which actor stops first.
        site.announce("a call of a runner function was lost");
        let pid_file = site.path("pid");
        let path = format!("path={}", pid_file.display());
        let words = ["run", "-t", "1", "site_runner.hang", &path];
        let asked: &Site = site;
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| asked.saltern(&words));
            let hangs = wait_until("the runner to hang", SOON, || {
                fs::read_to_string(&pid_file)
                    .ok()?
                    .trim()
                    .parse::<i32>()
                    .ok()
            });
            let _ = asking.join();
            hangs
        })?;
        Ok(())
    })
}
