//! The client `ssh`: by the salt-ssh of the site's own Salt, and what becomes of it without one.

use anyhow::{Result, ensure};
use saltern_tests::pam::PamService;
use saltern_tests::port::free_port;
use saltern_tests::site::Failure;
use saltern_tests::{Release, Server, Site, TestResult};
use serde_json::{Value, json};

use super::{Dialect, Interfaces, SECRET, User};

/// A host of the roster at which nobody listens.
const HOST: &str = "gone";

/// Runs a scenario with an interface that has the client `ssh`.
fn with_ssh(
    server: Server,
    has_python: bool,
    scenario: impl FnOnce(&mut User) -> Result<()>,
) -> TestResult {
    let service = PamService::install()?;
    let interfaces = Interfaces::new(&[Dialect::CherryPy]);
    Site::run(
        server,
        |config| {
            interfaces.configure(config, server, &service);
            config.set("netapi_enable_clients", "[ssh]");
            if server.is_ours() {
                let python = server.release().program("python3").display().to_string();
                config.set("python_bridge", if has_python { &*python } else { "false" });
            }
        },
        |site| {
            site.announce("request refused");
            site.announce("a call of the API failed");
            let port = free_port();
            let roster = format!("{HOST}: {{host: 127.0.0.1, port: {port}, user: nobody}}\n");
            std::fs::write(site.path("conf/roster"), roster)?;
            let _api = interfaces.start(site)?;
            let mut user = User::log_in(site, interfaces.port(), "ann")?;
            scenario(&mut user)
        },
    )?;
    Ok(service.remove()?)
}

/// The status and the body of the answer to a command. Its credentials stand in it: stock's salt-api of
/// 3008 looks for the token of a session where the master does not keep it.
fn ping(user: &mut User, name: &str) -> Result<(Value, Value)> {
    let chunk = json!({
        "client": "ssh", "tgt": HOST, "fun": "test.ping",
        "username": name, "password": SECRET, "eauth": "sharedsecret",
    });
    let call = json!({"method": "POST", "path": "/run", "json": [chunk]});
    let mut answer = user.session.call(&call)?;
    Ok((answer["status"].take(), answer["body"].take()))
}

#[test]
fn ssh_answers_with_what_the_salt_of_the_site_says_of_a_host() -> TestResult {
    let mut answers = Vec::new();
    for server in [
        Server::Stock(Release::V3008),
        Server::Saltern(Release::V3008),
    ] {
        with_ssh(server, true, |user| {
            let (refused, _) = ping(user, "bob")?;
            let (status, body) = ping(user, "ann")?;
            let said = body["return"][0][HOST].clone();
            ensure!(said["retcode"] == 255, "{status}: {body}");
            let error = said["stderr"].as_str().unwrap_or_default();
            ensure!(error.contains("refused"), "{body}");
            answers.push(json!([refused, status]));
            Ok(())
        })
        .map_err(Failure::into_error)?;
    }
    let is_same = answers.windows(2).all(|pair| pair.first() == pair.last());
    Ok(ensure_all(is_same, &answers)?)
}

fn ensure_all(is_same: bool, answers: &[Value]) -> Result<()> {
    ensure!(is_same, "stock and ours: {answers:?}");
    Ok(())
}

#[test]
fn ssh_without_a_salt_is_an_error_that_says_so() -> TestResult {
    with_ssh(Server::Saltern(Release::V3008), false, |user| {
        let (status, body) = ping(user, "ann")?;
        let text = body.to_string();
        ensure!(
            status == 500 && text.contains("python_bridge"),
            "{status}: {text}"
        );
        Ok(())
    })
}
