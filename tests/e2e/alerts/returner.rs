//! The alert about a returner that does not take jobs.

use saltern_stock::databases::{Kind, Server as Database};
use saltern_tests::{Config, TestResult};

use super::{OURS, Site, Watch};
use crate::sql;

const MINIONS: usize = 20;
const RETURNS: &[&str] = &["--returns", "20", "--rate", "100"];

#[test]
fn a_database_that_is_away() -> TestResult {
    Site::run(OURS, configure, |site| {
        for text in ["auto_accept", "the returner does not take jobs"] {
            site.announce(text);
        }
        let mut watch = Watch::start(site, "a_database_that_is_away")?;
        watch.expect_quiet(&["SalternReturnerLags"])?;
        site.step("minions return, and the database of the job cache is away");
        let mut fleet = site.start_fleet("busy", MINIONS, RETURNS)?;
        fleet.wait_for_more(100)?;
        watch.fires("SalternReturnerLags", &[("option", "master_job_cache")])?;
        fleet.stop()?;

        site.step("the database is there");
        let _database = Database::start(Kind::Postgres, &site.path("db"));
        site.saltern(&["sql", "create"])?.expect_code(0)?;
        watch.has_shown_all()
    })
}

fn configure(config: &mut Config) {
    super::configure(config);
    sql::job_cache(config);
    config.set("auto_accept", true);
}
