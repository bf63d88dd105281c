//! Minions of all three releases and our native one, connected at the same time.

use anyhow::{Result, ensure};
use saltern_tests::site::MinionKind;
use saltern_tests::{Release, Server, Site, TestResult};
use serde_json::{Value, json};

#[test]
fn all_minions_with_our_master() -> TestResult {
    together(Server::Saltern(Release::V3008))
}

#[test]
fn all_minions_with_a_stock_master() -> TestResult {
    together(Server::Stock(Release::V3008))
}

fn together(server: Server) -> TestResult {
    Site::run(
        server,
        |config| _ = config.set("timeout", 60),
        |site| {
            let minions = [
                ("m3006", MinionKind::Stock(Release::V3006)),
                ("m3007", MinionKind::Stock(Release::V3007)),
                ("m3008", MinionKind::Stock(Release::V3008)),
                ("native", MinionKind::Native),
            ];
            site.bring_up(&minions)?;
            everyone_answers(site)?;
            targets_pick_the_right_ones(site)?;
            the_native_minion_does_what_stock_does(site)
        },
    )
}

fn everyone_answers(site: &Site) -> Result<()> {
    site.step("all four answer");
    let run = site.salt(&["*", "test.ping", "--static", "--out=json"])?;
    let answer: Value = serde_json::from_str(&run.expect_code(0)?.stdout)?;
    ensure!(
        answer == json!({"m3006": true, "m3007": true, "m3008": true, "native": true}),
        "{run}"
    );
    Ok(())
}

fn targets_pick_the_right_ones(site: &Site) -> Result<()> {
    site.step("glob, list and pcre targets");
    let cases: [(&[&str], &[&str]); 4] = [
        (&["m300[67]"], &["m3006", "m3007"]),
        (&["-L", "m3008,native"], &["m3008", "native"]),
        (&["-E", "m3007|n.*"], &["m3007", "native"]),
        (&["native"], &["native"]),
    ];
    for (target, expected) in cases {
        let mut arguments = target.to_vec();
        arguments.extend(["test.ping", "--static", "--out=json"]);
        let run = site.salt(&arguments)?;
        let answer: Value = serde_json::from_str(&run.expect_code(0)?.stdout)?;
        let mut answered: Vec<&str> = answer
            .as_object()
            .into_iter()
            .flatten()
            .map(|(id, _)| id.as_str())
            .collect();
        answered.sort_unstable();
        ensure!(
            answered == expected,
            "{target:?} reached {answered:?}\n{run}"
        );
    }
    Ok(())
}

/// The same call to the stock minion and to ours gives the same answer and the same exit code.
fn the_native_minion_does_what_stock_does(site: &Site) -> Result<()> {
    let calls: &[&[&str]] = &[
        &["test.echo", "héllo"],
        &["test.echo", "[1, 2, {a: b}]"],
        &["test.arg", "one", "2", "key=value", "list=[1, 2]"],
        &["cmd.run", "echo out; echo err >&2"],
        &["cmd.run", "exit 3"],
        &["cmd.run", "pwd", "cwd=/"],
        &["cmd.run", "echo $SALTERN_TEST", "env={SALTERN_TEST: set}"],
        &["cmd.run", "printf 'two\\nlines\\n'"],
        &["grains.get", "role"],
        &["no.such_function"],
        &["test.ping", "surplus"],
    ];
    for call in calls {
        site.step(&format!("native and stock answer alike: {call:?}"));
        let answer = |id: &str| -> Result<(Option<i32>, Value)> {
            let mut arguments = vec![id];
            arguments.extend(*call);
            arguments.extend(["--out=json", "--static"]);
            let run = site.salt(&arguments)?;
            let all: Value = serde_json::from_str(&run.stdout)
                .map_err(|error| anyhow::anyhow!("no JSON ({error})\n{run}"))?;
            let mut answer = all[id].clone();
            // Only stock hands a function with **kwargs the publication's fields too.
            if let Some(kwargs) = answer.get_mut("kwargs").and_then(Value::as_object_mut) {
                kwargs.retain(|name, _| !name.starts_with("__pub_"));
            }
            // The rest is the function's documentation, in other words.
            if let Some(text) = answer
                .as_str()
                .filter(|text| text.starts_with("Passed invalid"))
            {
                answer = Value::from(text.lines().next());
            }
            Ok((run.code, answer))
        };
        let (stock, native) = (answer("m3008")?, answer("native")?);
        ensure!(
            stock == native,
            "{call:?}: stock answers {stock:?}, native {native:?}"
        );
    }
    Ok(())
}
