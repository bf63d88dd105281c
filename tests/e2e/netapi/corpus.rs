//! The table of requests, played to stock's interfaces on stock's master and to ours.

use anyhow::Result;
use saltern_tests::pam::PamService;
use saltern_tests::site::Failure;
use saltern_tests::{Release, Server, Site, TestResult};
use serde_json::Value;

use super::{Dialect, Interfaces, bring_up};

#[test]
fn record() -> TestResult {
    let release = match std::env::var("SALTERN_RECORD_RELEASE").as_deref() {
        Ok("3006") => Release::V3006,
        Ok("3007") => Release::V3007,
        _ => Release::V3008,
    };
    let dialects: &[Dialect] = match release {
        Release::V3006 => &[Dialect::CherryPy, Dialect::Wsgi],
        _ => &[Dialect::CherryPy, Dialect::Tornado],
    };
    let service = PamService::install()?;
    let answers = answers(Server::Stock(release), dialects, &service)?;
    for (dialect, answers) in answers {
        let path = format!(
            "/work/h/recorded/{}-{}.json",
            dialect.name(),
            release.compat()
        );
        std::fs::write(path, serde_json::to_string_pretty(&answers)?)?;
    }
    Ok(service.remove()?)
}

/// What the interfaces of one server answered.
fn answers(
    server: Server,
    dialects: &[Dialect],
    service: &PamService,
) -> Result<Vec<(Dialect, Vec<Value>)>> {
    let interfaces = Interfaces::new(dialects);
    let mut answers = Vec::new();
    Site::run(
        server,
        |config| interfaces.configure(config, server, service),
        |site| {
            bring_up(site)?;
            let _api = interfaces.start(site)?;
            answers = interfaces.play(site)?;
            Ok(())
        },
    )
    .map_err(Failure::into_error)?;
    Ok(answers)
}
