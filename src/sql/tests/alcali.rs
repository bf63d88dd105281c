//! Alcali's pages on our rows: the statements that its models make (Django's of `api/models.py` and
//! `api/views/salt.py`), and what its pages take from the rows.

use saltern_config::SqlSchema;
use saltern_store::Followed;
use serde_json::{Value as Json, json};

use crate::common::{Site, jid, job_row, load, ret, return_row};

/// The columns of a return, in the order of the model.
const RETURN: [&str; 7] = [
    "fun",
    "jid",
    "return",
    "id",
    "success",
    "full_ret",
    "alter_time",
];

/// Every page leaves out what probes return.
const NO_PROBES: &str = "NOT (\"salt_returns\".\"fun\" = 'saltutil.find_job')";

/// A return so many seconds later: times of MySQL have whole seconds.
fn at(seconds: i64, load: &Json) -> Followed {
    let mut row = return_row(load);
    if let Followed::Return(row) = &mut row {
        row.record.received += seconds * 1_000_000;
    }
    row
}

fn rows(site: &Site) {
    let mut state = ret(
        2,
        "web1",
        json!({
            "file_|-a_|-a_|-managed": {"result": true, "changes": {}},
            "cmd_|-b_|-b_|-run": {"result": false, "changes": {}},
        }),
    );
    state["fun"] = json!("state.apply");
    state["fun_args"] = json!([]);
    state["success"] = json!(false);
    state["retcode"] = json!(2);
    let mut applied = load(2, json!([]));
    applied["fun"] = json!("state.apply");
    applied["user"] = json!("sudo_ann");
    let mut probe = ret(4, "web1", json!({}));
    probe["fun"] = json!("saltutil.find_job");
    let mut named = ret(3, "web2", json!("grüße"));
    named["fun_args"] = json!(["one", "two=2"]);
    let rows = [
        job_row(&load(1, json!(["x"]))),
        job_row(&applied),
        job_row(&load(3, json!(["one", {"__kwarg__": true, "two": 2}]))),
        at(1, &ret(1, "web1", json!("first"))),
        at(2, &state),
        at(3, &named),
        at(4, &probe),
    ];
    let rows: Vec<_> = rows.iter().collect();
    let stored = site.writer().store(&rows);
    assert_eq!((stored.done, stored.skipped), (rows.len(), 0), "{stored:?}");
    let events = [(
        "salt/job/1/new".to_owned(),
        bytes::Bytes::from_static(b"\x81\xa3jid\xa11"),
    )];
    site.writer().store_events(&events).expect("an event");
}

/// Returns by the statement that Django sends; its MySQL quotes names otherwise.
fn returns(site: &Site, condition: &str, order: &str) -> Vec<Vec<Option<String>>> {
    let columns = RETURN
        .map(|column| format!("\"salt_returns\".\"{column}\""))
        .join(", ");
    ask(
        site,
        &format!("SELECT {columns} FROM \"salt_returns\" WHERE ({NO_PROBES}{condition}) {order}"),
    )
}

fn ask(site: &Site, sql: &str) -> Vec<Vec<Option<String>>> {
    let sql = match site.schema {
        SqlSchema::Mysql => sql.replace('"', "`"),
        _ => sql.to_owned(),
    };
    site.server.query(&[&sql])
}

fn text(row: &[Option<String>], column: &str) -> String {
    let place = RETURN
        .iter()
        .position(|name| *name == column)
        .expect("a column");
    row[place].clone().expect("a text")
}

/// `loaded_ret`.
fn loaded(row: &[Option<String>]) -> Json {
    serde_json::from_str(&text(row, "full_ret")).expect("JSON")
}

fn pages_show_our_rows(schema: SqlSchema) {
    let site = Site::new(schema);
    rows(&site);
    let newest = "ORDER BY \"salt_returns\".\"alter_time\" DESC";

    // The list of jobs: newest first, without probes, each with its arguments, success and user.
    let listed = returns(&site, "", &format!("{newest} LIMIT 50"));
    let heads: Vec<_> = listed
        .iter()
        .map(|row| (text(row, "jid"), text(row, "id")))
        .collect();
    let expected = [(3, "web2"), (2, "web1"), (1, "web1")];
    assert_eq!(
        heads,
        expected.map(|(number, id)| (jid(number), id.to_owned()))
    );
    let arguments: Vec<Json> = listed
        .iter()
        .map(|row| loaded(row)["fun_args"].clone())
        .collect();
    assert_eq!(json!(arguments), json!([["one", "two=2"], [], ["x"]]));
    let success: Vec<Json> = listed
        .iter()
        .map(|row| loaded(row)["success"].clone())
        .collect();
    assert_eq!(json!(success), json!([true, false, true]));
    let users: Vec<Json> = listed
        .iter()
        .map(|row| {
            let jid = text(row, "jid");
            let jobs = ask(
                &site,
                &format!(
                    "SELECT \"jids\".\"jid\", \"jids\".\"load\" FROM \"jids\" \
                     WHERE \"jids\".\"jid\" = '{jid}' LIMIT 21"
                ),
            );
            assert_eq!(jobs.len(), 1, "`get` wants exactly one");
            let load: Json =
                serde_json::from_str(jobs[0][1].as_deref().expect("a load")).expect("JSON");
            load["user"].clone()
        })
        .collect();
    assert_eq!(json!(users), json!(["root", "sudo_ann", "root"]));

    // Its filters: minions, and days.
    let of_web2 = returns(&site, " AND \"salt_returns\".\"id\" = 'web2'", newest);
    assert_eq!(of_web2.len(), 1);
    let day = match schema {
        SqlSchema::Mysql => "DATE(\"salt_returns\".\"alter_time\")",
        _ => "(\"salt_returns\".\"alter_time\" AT TIME ZONE 'UTC')::date",
    };
    for (days, count) in [
        ("'2026-11-21' AND '2026-11-21'", 3),
        ("'2026-11-22' AND '2026-11-23'", 0),
    ] {
        let condition = format!(" AND {day} BETWEEN {days}");
        assert_eq!(returns(&site, &condition, newest).len(), count, "{days}");
    }
    let minions = ask(
        &site,
        &format!("SELECT DISTINCT \"salt_returns\".\"id\" FROM \"salt_returns\" WHERE {NO_PROBES}"),
    );
    assert_eq!(minions.len(), 2);

    // A job's page, and one return of it.
    let condition = format!(" AND \"salt_returns\".\"jid\" = '{}'", jid(3));
    let job = returns(&site, &condition, newest);
    assert_eq!(
        (job.len(), loaded(&job[0])["return"].clone()),
        (1, json!("grüße"))
    );
    assert_eq!(text(&job[0], "return"), "\"grüße\"");
    let condition = format!("{condition} AND \"salt_returns\".\"id\" = 'web2'");
    assert_eq!(
        returns(&site, &condition, "LIMIT 21").len(),
        1,
        "`get` wants exactly one"
    );

    // A minion's page: its last job, and its conformity by the last highstate.
    let of_web1 = " AND \"salt_returns\".\"id\" = 'web1'";
    let last = returns(&site, of_web1, &format!("{newest} LIMIT 1"));
    assert_eq!(text(&last[0], "jid"), jid(2));
    let states = " AND (\"salt_returns\".\"fun\" = 'state.apply' OR \"salt_returns\".\"fun\" = \
                  'state.highstate')";
    let highstates = returns(&site, &format!("{states}{of_web1}"), "");
    let highstate = loaded(&highstates[0]);
    assert_eq!(highstate["fun_args"], json!([]));
    let results = highstate["return"]
        .as_object()
        .expect("a map of states")
        .values();
    assert!(results.clone().any(|state| state["result"] == json!(false)));
    assert!(results.clone().all(|state| state["result"].is_boolean()));

    // The events.
    let events = ask(
        &site,
        "SELECT \"salt_events\".\"id\", \"salt_events\".\"tag\", \"salt_events\".\"data\", \
         \"salt_events\".\"alter_time\", \"salt_events\".\"master_id\" FROM \"salt_events\" \
         ORDER BY \"salt_events\".\"alter_time\" DESC LIMIT 50",
    );
    let shown: Vec<_> = events[0]
        .iter()
        .map(|column| column.as_deref().unwrap_or(""))
        .collect();
    assert_eq!(
        [shown[1], shown[2], shown[4]],
        ["salt/job/1/new", "{\"jid\": \"1\"}", "the_master"]
    );
}

#[test]
fn alcali_finds_jobs_returns_and_events_in_postgres() {
    pages_show_our_rows(SqlSchema::Postgres);
}

#[test]
fn alcali_finds_jobs_returns_and_events_in_mysql() {
    pages_show_our_rows(SqlSchema::Mysql);
}
