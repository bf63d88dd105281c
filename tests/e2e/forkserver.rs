//! Programs of stock Salt that the harness forks are those that it would start.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::peer;
use saltern_tests::site::SOON;
use saltern_tests::{Release, run};
use serde_json::{Map, Value, json};

/// A variable that says nothing to Python: a command that sets one is started afresh.
const MARK: &str = "SALTERN_TESTS_FRESH";

fn describe(release: Release, code: &str) -> Command {
    let mut command = Command::new(release.program("python"));
    command.arg(peer("describe.py")).arg(code);
    command
}

fn described(command: &mut Command, is_forked: bool) -> Result<Map<String, Value>> {
    let run = run(command, SOON)?;
    let text = &run.expect_code(0)?.stdout;
    let mut said: Map<String, Value> = serde_json::from_str(text)?;
    let forked = said.remove("is forked").context("whether it is forked")?;
    ensure!(forked == is_forked, "forked: {forked}");
    Ok(said)
}

#[test]
fn forked_program_is_given_what_a_fresh_one_is() -> Result<()> {
    for release in Release::ALL {
        let forked = described(&mut describe(release, "0"), true)?;
        let mut fresh = described(describe(release, "0").env(MARK, "1"), false)?;
        let environment = fresh.get_mut("environment").and_then(Value::as_object_mut);
        environment.context("an environment")?.remove(MARK);
        // Further variables of a fresh one come from the environment of the test run.
        fresh.insert("descriptors".to_owned(), json!([0, 1, 2]));
        for (name, value) in &fresh {
            let found = forked.get(name);
            ensure!(
                found == Some(value),
                "{release:?}: {name} is {found:?} and not {value}"
            );
        }
    }
    Ok(())
}

#[test]
fn exit_status_of_a_forked_program_is_its_own() -> Result<()> {
    let done = run(&mut describe(Release::V3008, "3"), SOON)?;
    ensure!((done.code, done.signal) == (Some(3), None), "{done}");
    let done = run(&mut describe(Release::V3008, "-9"), SOON)?;
    ensure!((done.code, done.signal) == (None, Some(9)), "{done}");
    Ok(())
}
