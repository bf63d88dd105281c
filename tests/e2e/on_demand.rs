//! External pillars that a minion asks for (`pillar.ext`): those that `on_demand_ext_pillar` lists
//! are run, others are not, by our master as by stock's.

use std::fs;

use anyhow::{Result, ensure};
use saltern_tests::site::{Failure, MinionKind};
use saltern_tests::{Config, Release, Server, Site, TestResult};

const MODULE: &str = "def ext_pillar(minion_id, pillar, *args, **kwargs):\n    \
    return {'asked': {'id': minion_id, 'args': list(args), 'named': kwargs,\n                      \
            'seen': sorted(pillar)}}\n";

/// Requested paths, and whether the answer has each.
const ASKED: &[(&str, bool)] = &[
    ("{'site_ext': [1, two]}", true),
    ("{'site_ext': {'a': 1}}", true),
    ("{'cmd_json': \"echo '{\\\"by_command\\\": 1}'\"}", true),
    ("{'hidden_ext': [1]}", false),
    ("{'site_ext': [1], 'hidden_ext': [1]}", false),
];

#[test]
fn a_minion_gets_the_external_pillars_it_may_ask_for_3006() -> TestResult {
    a_minion_gets_the_external_pillars_it_may_ask_for(Release::V3006)
}

#[test]
fn a_minion_gets_the_external_pillars_it_may_ask_for_3008() -> TestResult {
    a_minion_gets_the_external_pillars_it_may_ask_for(Release::V3008)
}

fn a_minion_gets_the_external_pillars_it_may_ask_for(release: Release) -> TestResult {
    let stock = answers(Server::Stock(release)).map_err(Failure::into_error)?;
    let ours = answers(Server::Saltern(release)).map_err(Failure::into_error)?;
    for (((asked, is_allowed), stock), ours) in ASKED.iter().zip(&stock).zip(&ours) {
        let has_it = ours.contains("asked") || ours.contains("by_command");
        if stock != ours || has_it != *is_allowed {
            let version = release.version();
            Err(anyhow::anyhow!(
                "{version}: {asked}\nstock: {stock}\nours:  {ours}"
            ))?;
        }
    }
    Ok(())
}

fn answers(server: Server) -> Result<Vec<String>, Failure> {
    let mut answers = Vec::new();
    let configure = |config: &mut Config| {
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        config
            // The minion answers, however busy the machine is.
            .set("timeout", 60)
            .set("extension_modules", format!("{root}/ext"))
            .set("pillar_roots", format!("{{base: [{root}/pillar]}}"))
            .set("on_demand_ext_pillar", "[site_ext, cmd_json]");
        if server.is_ours() {
            let python = server.release().program("python3");
            config.set("python_bridge", python.display());
        }
    };
    Site::prepared(server, configure, |site| {
        write(site)?;
        site.announce("on-demand ext_pillar not allowed");
        site.start_master()?;
        site.bring_up(&[("m1", MinionKind::Stock(server.release()))])?;
        for (asked, _) in ASKED {
            let run = site.salt(&["m1", "pillar.ext", asked, "--out=json", "--static"])?;
            ensure!(run.stdout.contains("plain"), "no pillar at all: {run}");
            answers.push(run.stdout);
        }
        Ok(())
    })?;
    Ok(answers)
}

fn write(site: &Site) -> Result<()> {
    for directory in ["ext/pillar", "pillar"] {
        fs::create_dir_all(site.path(directory))?;
    }
    for module in ["site_ext", "hidden_ext"] {
        fs::write(site.path(format!("ext/pillar/{module}.py")), MODULE)?;
    }
    fs::write(site.path("pillar/top.sls"), "base:\n  '*': [plain]\n")?;
    Ok(fs::write(site.path("pillar/plain.sls"), "plain: 1\n")?)
}
