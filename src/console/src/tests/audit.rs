//! The page of the audit trail: its filters, its chain, its export, and who may see it.

use super::*;

#[tokio::test]
async fn filters_are_asked_for_and_stand_in_the_command_line() {
    let rig = Rig::new(Table::full("x"));
    let path = "/console/audit?user=ann&door=api&function=state.*&verdict=refused&since=1h";
    let answer = rig.get(path).await;
    assert_eq!(answer.status, StatusCode::OK);
    let asked = rig.master.asked_of("audit.page").remove(0);
    let argument = |name: &str| asked.get("kwarg").unwrap().get(name).cloned();
    assert_eq!(argument("user"), Some("ann".into()));
    assert_eq!(argument("door"), Some("api".into()));
    assert_eq!(argument("function"), Some("state.*".into()));
    assert_eq!(argument("verdict"), Some("refused".into()));
    let hour_ago = rig.clock.unix_micros() - 3_600_000_000;
    assert_eq!(argument("since"), Some(hour_ago.into()));
    let line = "saltern audit --user ann --door api --fun &#x27;state.*&#x27; --verdict refused \
                --since 3600";
    assert!(answer.body.contains(line), "{}", answer.body);
    let body = answer.body.replace("&#x2f;", "/");
    assert!(body.contains("/console/audit/export?user=ann&amp;door=api"));
}

#[tokio::test]
async fn chain_says_up_to_where_it_was_verified_and_by_whom() {
    let rig = Rig::new(Table::full("ben"));
    let body = rig.get("/console/audit").await.body;
    assert!(body.contains("by ben"));
    assert!(body.contains("7:00ff00ff00ff…"));
    assert!(body.contains("id=\"verify\""));
    let empty = Rig::new(Table::empty());
    let body = empty.get("/console/audit").await.body;
    assert!(body.contains("not verified yet"));

    let answer = rig.post("/console/audit/verify", &[]).await;
    assert_eq!(answer.header("location"), "/console/audit");
    assert_eq!(rig.master.asked_of("audit.verify").len(), 1);
    let forged = rig
        .post_as_is("/console/audit/verify", &[("csrf", "x")], &[])
        .await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    assert_eq!(rig.master.asked_of("audit.verify").len(), 1);
}

#[tokio::test]
async fn export_is_lines_of_json_up_to_the_last_page() {
    let rig = Rig::new(Table::full("x"));
    rig.master.answer_in_turn(
        "audit.page",
        &[("rows", "next", Some("7")), ("rows", "next", None)],
    );
    let answer = rig.get("/console/audit/export?user=ann").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    assert_eq!(answer.header("cache-control"), "no-store");
    let lines: Vec<serde_json::Value> = answer
        .body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{}", answer.body);
    assert_eq!(lines[0]["number"], 7);
    assert_eq!(lines[0]["hash"], "00ff");
    let asked = rig.master.asked_of("audit.page");
    let before = |at: usize| {
        let arguments: &Value = asked[at].get("kwarg").unwrap();
        arguments.get("before").cloned()
    };
    assert_eq!((before(0), before(1)), (None, Some("7".into())));
}

#[tokio::test]
async fn user_without_the_right_sees_neither_link_nor_page() {
    let rig = Rig::new(Table::full("x"));
    rig.master.allow(&["runner jobs.list_jobs"]);
    rig.master.refuse("audit.page");
    let front = rig.get("/console/").await.body;
    assert!(!front.contains("/console/audit"));
    for path in ["/console/audit", "/console/audit/export"] {
        let answer = rig.get(path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    rig.master.refuse("audit.verify");
    let answer = rig.post("/console/audit/verify", &[]).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn verifying_is_offered_to_who_may() {
    let rig = Rig::new(Table::full("x"));
    rig.master.allow(&["runner audit.list"]);
    let body = rig.get("/console/audit").await.body;
    assert!(!body.contains("id=\"verify\""));
}
