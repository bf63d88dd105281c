//! The page of drift: groups, minions of a verdict, and dry runs for those who may.

use super::*;
use master::GROUP;

#[tokio::test]
async fn groups_lead_to_their_minions_and_offer_a_dry_run() {
    let rig = Rig::new(Table::full("x"));
    let body = rig.get("/console/drift").await.body.replace("&#x2f;", "/");
    assert!(body.contains(&format!("/console/drift?group={GROUP}")));
    assert!(
        body.contains("and 4 more"),
        "three of seven states are shown"
    );
    assert!(body.contains("test=True now on 3 minions"));
    let body = rig
        .get("/console/drift?verdict=failed")
        .await
        .body
        .replace("&#x2f;", "/");
    assert!(body.contains(&format!("/console/jobs/{JID}")));
    assert!(body.contains("dry run"));
    let asked = rig.master.asked_of("highstates.page").remove(0);
    let verdict = asked.get("kwarg").unwrap().get("verdict").cloned();
    assert_eq!(verdict, Some("failed".into()));
}

#[tokio::test]
async fn master_without_a_highstate_says_so() {
    let rig = Rig::new(Table::empty());
    let body = rig.get("/console/drift").await.body;
    assert!(body.contains("No highstate is known yet."));
}

#[tokio::test]
async fn dry_run_is_published_for_the_minions_of_a_group() {
    let rig = Rig::new(Table::full("x"));
    let answer = rig.post("/console/drift/test", &[("group", GROUP)]).await;
    assert_eq!(answer.header("location"), format!("/console/jobs/{JID}"));
    let job = rig.master.asked_of("state.apply").remove(0);
    assert_eq!(job.get("cmd"), Some(&"publish".into()));
    assert_eq!(job.get("tgt_type"), Some(&"list".into()));
    assert_eq!(job.get("tgt"), Some(&Value::Array(vec!["m1".into()])));
    let arguments = job.get("arg").and_then(Value::as_array).unwrap();
    assert_eq!(arguments[0].get("test"), Some(&true.into()));

    for form in [vec![], vec![("csrf", "x"), ("minion", "m1")]] {
        let answer = rig.post_as_is("/console/drift/test", &form, &[]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
    }
    let answer = rig.post("/console/drift/test", &[]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(rig.master.asked_of("state.apply").len(), 1);
}

#[tokio::test]
async fn dry_run_is_not_offered_to_who_may_not_start_one() {
    let rig = Rig::new(Table::full("x"));
    rig.master
        .allow(&["runner jobs.lookup_jid", "runner cache.grains"]);
    for path in [
        "/console/drift",
        "/console/drift?verdict=failed",
        "/console/minions/m1",
    ] {
        let body = rig.get(path).await.body;
        assert!(!body.contains("/console/drift/test"), "{path}");
    }
    rig.master.allow(&["runner jobs.lookup_jid", "state.apply"]);
    let body = rig.get("/console/drift").await.body;
    assert!(body.contains("/console/drift/test"));
}

#[tokio::test]
async fn user_without_the_right_sees_neither_link_nor_page() {
    let rig = Rig::new(Table::full("x"));
    rig.master.allow(&["runner jobs.list_jobs"]);
    rig.master.refuse("highstates.groups");
    assert!(!rig.get("/console/").await.body.contains("/console/drift"));
    let answer = rig.get("/console/drift").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn minion_has_its_highstate_mine_and_history_by_right() {
    let rig = Rig::new(Table::full("x"));
    let body = rig.get("/console/minions/m1").await.body;
    for part in [
        "id=\"highstate\"",
        "id=\"files\"",
        "secret-mine",
        "id=\"history\"",
    ] {
        assert!(body.contains(part), "{part}");
    }
    assert!(body.contains("Its connection was lost."));
    rig.master.allow(&["runner cache.grains"]);
    let body = rig.get("/console/minions/m1").await.body;
    for part in ["id=\"highstate\"", "id=\"mine\"", "secret-mine"] {
        assert!(!body.contains(part), "{part}");
    }
    assert!(body.contains("id=\"history\""));
}
