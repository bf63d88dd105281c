//! A cluster whose PostgreSQL has a synchronous standby, which takes over.

use std::fs;

use anyhow::ensure;
use saltern_stock::databases::{PASSWORD, Server as Database};
use saltern_tests::TestResult;
use saltern_tests::site::MinionKind;

use crate::cluster::{LONG, announce_outage, pair, wait_for_ping};

#[test]
fn failover_of_postgresql_loses_no_acknowledged_return() -> TestResult {
    pair(
        LONG,
        |_| {},
        |pair| {
            announce_outage(pair.a);
            let place = pair.a.path("db2");
            let both = format!(
                "host={},{} user=salt password={PASSWORD} connect_timeout=10",
                pair.a.path("db").display(),
                place.display()
            );
            pair.a.config().set(
                "saltern_cluster",
                format!("{{postgres: '{both}', lease: {LONG}}}"),
            );
            pair.a.write_config()?;
            pair.start_first()?;
            pair.a
                .step("a synchronous standby that is there from now on");
            let standby = Database::start_standby(&pair.database, &place);
            pair.a.bring_up(&[("m1", MinionKind::Native)])?;
            wait_for_ping(pair.a, "m1")?;
            let mut fleet = pair.a.start_fleet("to", 20, &["--returns", "4"])?;
            fleet.wait_for_more(40)?;

            pair.a
                .step("the primary is lost under load, and the standby promoted");
            pair.database.kill();
            standby.promote();
            fleet.wait_for_more(40)?;
            wait_for_ping(pair.a, "m1")?;
            let ledger = fs::read_to_string(fleet.stop()?)?;
            pair.database = standby;
            let stored = pair.returns();
            let acknowledged: Vec<_> = ledger
                .lines()
                .filter_map(|line| {
                    let mut words = line.split(' ');
                    Some((words.next()?.to_owned(), words.next()?.to_owned()))
                })
                .collect();
            ensure!(acknowledged.len() >= 80, "{} returns", acknowledged.len());
            let lost: Vec<_> = acknowledged
                .iter()
                .filter(|one| !stored.contains(one))
                .collect();
            ensure!(
                lost.is_empty(),
                "{} are lost, such as {:?}",
                lost.len(),
                lost.first()
            );
            ensure!(
                pair.a.metric("saltern_cluster_epoch", "")? < 1.5,
                "it lost its role"
            );
            Ok(())
        },
    )
}
