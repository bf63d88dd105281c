//! The metrics endpoint: bounded cardinality under load, valid for Prometheus, and inside TLS for
//! clients with a certificate.

use std::collections::BTreeSet;
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use openssl::ssl::{SslConnector, SslFiletype, SslMethod};
use saltern_tests::authority::Authority;
use saltern_tests::prometheus::{Answer, check_metrics, get, get_over, metrics_address};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

const OURS: Server = Server::Saltern(Release::V3008);

/// More series than a master ever has: they follow from the program, not from the site.
const MAX_SERIES: usize = 2500;

fn page(site: &mut Site, path: &str) -> Result<Answer> {
    let address = site.config().get("saltern_metrics_address");
    get(address.context("a metrics address")?, path)
}

#[test]
fn metrics_of_a_busy_master_name_no_minion_no_job_and_no_user() -> TestResult {
    let listens = |config: &mut saltern_tests::Config| {
        config
            .set("timeout", 60)
            .set("saltern_metrics_address", metrics_address());
    };
    Site::run(OURS, listens, |site| {
        let minions = ["anna-berta-1", "anna-berta-2", "anna-berta-3"];
        site.bring_up(&[
            (minions[0], MinionKind::Stock(Release::V3008)),
            (minions[1], MinionKind::Native),
            (minions[2], MinionKind::Native),
        ])?;
        // One that is not let in, and one that goes.
        site.start_minion("anna-berta-4", MinionKind::Native)?;
        site.wait_pending("anna-berta-4")?;
        busy(site)?;
        let first = page(site, "/metrics")?;
        busy(site)?;
        site.kill_minion(minions[2]);
        let silent = site.saltern_cmd(&["--timeout", "1", minions[2], "test.ping"])?;
        silent.expect_text(minions[2])?;
        busy(site)?;
        let last = page(site, "/metrics")?;
        ensure!(last.status == 200, "{}", last.head);
        check_metrics(&last.body, &site.path("metrics"))?;
        let user = site.config().get("user").context("a user")?.to_owned();
        for line in last.body.lines().filter(|line| !line.starts_with('#')) {
            let labels = line.rsplit_once(' ').map_or("", |(labels, _)| labels);
            ensure!(!labels.contains("anna-berta"), "a minion is named: {line}");
            ensure!(!has_jid(labels), "a job is named: {line}");
            ensure!(
                !labels.contains(&format!("\"{user}\"")),
                "a user is named: {line}"
            );
        }
        let (before, after) = (series(&first.body), series(&last.body));
        ensure!(after.len() < MAX_SERIES, "there are {} series", after.len());
        // What was done meanwhile, more of the same and a minion that is silent, has a name already
        // or one from a closed set.
        let new: Vec<_> = after.difference(&before).collect();
        site.step(&format!("{} new series of {}", new.len(), after.len()));
        ensure!(new.len() < 60, "new series: {new:?}");
        for path in ["/healthz", "/readyz"] {
            let answer = page(site, path)?;
            ensure!(answer.status == 200, "{path}: {answer:?}");
        }
        Ok(())
    })
}

/// Jobs, functions of the master, files and pillars, and requests that are refused.
fn busy(site: &Site) -> Result<()> {
    for job in [
        &["test.ping"][..],
        &["test.echo", "x"],
        &["no.such_function"],
    ] {
        let command = [&["--timeout", "2", "anna-berta-[12]"], job].concat();
        site.saltern_cmd(&command)?.expect_text("anna-berta-1")?;
    }
    site.salt(&["anna-berta-1", "saltutil.refresh_pillar"])?
        .expect_code(0)?;
    site.saltern(&["run", "jobs.list_jobs"])?.expect_code(0)?;
    let unknown = site.saltern(&["run", "no.such_function"])?;
    ensure!(unknown.code != Some(0), "{unknown}");
    Ok(())
}

/// Names and labels of all series.
fn series(page: &str) -> BTreeSet<&str> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect()
}

/// Twenty digits in a row.
fn has_jid(labels: &str) -> bool {
    let runs = labels.split(|letter: char| !letter.is_ascii_digit());
    runs.into_iter().any(|run| run.len() >= 20)
}

#[test]
fn metrics_inside_tls_are_for_those_who_show_a_certificate() -> TestResult {
    Site::prepared(
        OURS,
        |_| {},
        |site| {
            let authority = Authority::make(&site.path("conf"))?;
            let address = metrics_address();
            site.config()
                .set("saltern_metrics_address", &address)
                .set("saltern_metrics_ssl", authority.ssl());
            site.write_config()?;
            site.start_master()?;
            let ask = |shows: bool| -> Result<Answer> {
                let mut connector = SslConnector::builder(SslMethod::tls())?;
                connector.set_ca_file(site.path("conf/ca.pem"))?;
                if shows {
                    connector.set_certificate_file(site.path("conf/cert.pem"), SslFiletype::PEM)?;
                    connector.set_private_key_file(site.path("conf/key.pem"), SslFiletype::PEM)?;
                }
                let stream = TcpStream::connect(&address)?;
                stream.set_read_timeout(Some(SOON))?;
                let stream = connector.build().connect("127.0.0.1", stream)?;
                get_over(stream, "/metrics")
            };
            let shown = ask(true)?;
            ensure!(shown.status == 200, "{}", shown.head);
            ensure!(shown.body.contains("saltern_build_info{"), "{}", shown.body);
            ensure!(ask(false).is_err(), "nothing was shown, and it was served");
            ensure!(get(&address, "/metrics").is_err(), "plain text was served");
            wait_until("both to be counted", SOON, || {
                let refused = site.metric("saltern_http_refused_total", "tls").ok()?;
                (refused >= 2.0).then_some(())
            })?;
            Ok(())
        },
    )
}
