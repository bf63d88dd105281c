//! Pillars of stock minions of every release, compiled by stock's master and by ours: the same
//! values, the same targets that follow from them, the same states, the same errors.
//!
//! Hundreds of pillar trees are compared with stock's compiler in `saltern-content`; here the way
//! of a pillar is: request, renderers beside the workers, private reply, the minion's use of it,
//! and the cache that targets are matched against.

use std::fs;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{Failure, MinionKind};
use saltern_tests::{Release, Server, Site, TestResult};
use serde_json::Value;

const MINIONS: [(&str, Release); 3] = [
    ("m6", Release::V3006),
    ("m7", Release::V3007),
    ("m8", Release::V3008),
];

/// The files of the pillar, and one state.
const TREE: &[(&str, &str)] = &[
    (
        "pillar/top.sls",
        "base:\n  '*':\n    - common\n    - users\n  'G@os_family:* and m8':\n    - match: compound\n    \
         - eight\n  'm[67]':\n    - older\ndev:\n  'm8':\n    - only_dev\n",
    ),
    (
        "pillar/common.sls",
        "{% from 'map.jinja' import ports with context %}\n{% set host = grains['id'] %}\n\
         greeting: hello from {{ host }}\nswitch: yes\nmode: 0644\nsince: 2024-02-29\n\
         ports:\n{% for name, port in ports | dictsort %}  {{ name }}: {{ port }}\n{% endfor %}\
         minion_release: {{ grains['saltversion'].split('.') | first }}\n\
         nested:\n  list: [1, two, 3.5, null, true]\n  text: |\n    first\n    second\n",
    ),
    (
        "pillar/map.jinja",
        "{% set ports = {'http': 80, 'https': 443, grains['id']: 1000 + loop_base | default(5)} %}\n",
    ),
    (
        "pillar/users/init.sls",
        "include:\n  - users.admins\n  - .guests:\n      key: visitors\n      defaults:\n        \
         count: 2\nusers:\n  alice: {uid: 1001, shell: /bin/bash}\n",
    ),
    ("pillar/users/admins.sls", "users:\n  root: {uid: 0}\n"),
    (
        "pillar/users/guests.sls",
        "{% for n in range(count) %}\nguest{{ n }}: {uid: {{ 2000 + n }}}\n{% endfor %}\n",
    ),
    ("pillar/eight.sls", "role: web\ngreeting: overridden\n"),
    ("pillar/older.sls", "role: db\n"),
    ("pillar_dev/only_dev.sls", "from_dev: [1, 2]\n"),
    ("states/top.sls", "base:\n  '*':\n    - greet\n"),
    (
        "states/greet.sls",
        "{{ pillar['out'] }}/{{ grains['id'] }}/greeting:\n  file.managed:\n    - makedirs: True\n    \
         - contents: {{ pillar['greeting'] }}, {{ salt['pillar.get']('users:alice:uid') }}, \
         {{ pillar.get('from_dev', 'no dev') }}\n",
    ),
];

#[test]
fn stock_minions_get_the_same_pillar_from_both_masters() -> TestResult {
    Ok(compare()?)
}

fn compare() -> Result<()> {
    let mut answers = Vec::new();
    for server in [
        Server::Stock(Release::V3008),
        Server::Saltern(Release::V3008),
    ] {
        Site::run(
            server,
            |config| {
                let root = config.get("root_dir").unwrap_or_default().to_owned();
                config
                    .set("gather_job_timeout", 60)
                    .set("file_roots", format!("{{base: [{root}/states]}}"))
                    .set(
                        "pillar_roots",
                        format!("{{base: [{root}/pillar], dev: [{root}/pillar_dev]}}"),
                    )
                    .set(
                        "ext_pillar",
                        format!("[{{cmd_yaml: \"printf 'out: {root}/out\\nasked_by: %s'\"}}]"),
                    )
                    .set("timeout", 60);
            },
            |site| {
                answers.push(ask(site)?);
                Ok(())
            },
        )
        .map_err(Failure::into_error)?;
    }
    let [stock, ours] =
        <[_; 2]>::try_from(answers).map_err(|_| anyhow::anyhow!("two masters were asked"))?;
    for ((what, stock), (_, ours)) in stock.iter().zip(&ours) {
        ensure!(
            stock == ours,
            "{what}\n--- stock\n{stock:#}\n--- ours\n{ours:#}"
        );
    }
    Ok(())
}

/// Answers of the minions and the commands, by query.
fn ask(site: &mut Site) -> Result<Vec<(String, Value)>> {
    for (name, text) in TREE {
        let path = site.path(name);
        fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        fs::write(path, text)?;
    }
    let minions = MINIONS.map(|(id, release)| (id, MinionKind::Stock(release)));
    site.bring_up(&minions)?;
    let root = site.path("").display().to_string();
    let mut answers = Vec::new();
    for arguments in [
        &["*", "pillar.items"][..],
        &["*", "pillar.get", "users:guests", "none"],
        &["m8", "pillar.items", "pillarenv=dev"],
        &[
            "m8",
            "pillar.items",
            "pillar={greeting: given, users: {bob: 1}}",
        ],
        &["m8", "pillar.item", "role", "visitors"],
        &["*", "state.show_top"],
    ] {
        let run = site.salt(&[arguments, &["--static", "--out=json"]].concat())?;
        run.expect_code(0)?;
        let text = run.stdout.replace(&root, "ROOT/");
        answers.push((arguments.join(" "), serde_json::from_str(&text)?));
    }
    for arguments in [
        &["-I", "role:web", "test.ping"][..],
        &["-I", "visitors:guest1:uid:20*", "test.ping"],
        &["-C", "I@role:db and not m6", "test.ping"],
        &["-J", "role:^(web|d.)$", "test.ping"],
        &["-G", "id:m7", "test.ping"],
    ] {
        let run = site.salt(&[arguments, &["--static", "--out=json"]].concat())?;
        run.expect_code(0)?;
        answers.push((arguments.join(" "), serde_json::from_str(&run.stdout)?));
    }
    site.step("states that use the pillar");
    site.salt(&["*", "state.apply"])?.expect_code(0)?;
    for (id, _) in MINIONS {
        let written = fs::read_to_string(site.path(format!("out/{id}/greeting")))?;
        answers.push((format!("states of {id}"), Value::String(written)));
    }
    site.step("a pillar with an error");
    site.announce("a pillar SLS does not render");
    fs::write(site.path("pillar/older.sls"), "role: {{ no.such.thing }}\n")?;
    let run = site.salt(&["m6,m7", "-L", "state.apply", "--static", "--out=json"])?;
    // The texts of stock and ours name the error in words of their own; that there is one, which
    // SLS it is in, and what becomes of the states is the same.
    for id in ["m6", "m7"] {
        ensure!(
            run.stdout.contains("Rendering SLS 'older' failed"),
            "{id} does not hear which SLS is broken\n{run}"
        );
    }
    answers.push(("broken".to_owned(), Value::from(run.code)));
    fs::write(site.path("pillar/older.sls"), "role: repaired\n")?;
    site.salt(&["m6", "saltutil.refresh_pillar", "wait=True", "timeout=150"])?
        .expect_code(0)?;
    let run = site.salt(&["m6", "pillar.get", "role", "--out=txt"])?;
    answers.push(("repaired".to_owned(), Value::from(run.stdout)));
    Ok(answers)
}
