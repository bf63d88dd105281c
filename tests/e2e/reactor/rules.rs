//! Rules of the reactor: tag globs, lists, paths, the loop guard, and the functions that change
//! rules while the master runs.

use serde_json::json;

use super::row::Row;

/// Says by which file and for which tag it was rendered.
const SEEN: &str = "
seen:
  runner.test.arg:
    - args:
      - tag: {{ tag }}
";

/// As [`SEEN`], under an id of its own.
const SEEN_TOO: &str = "
then:
  runner.test.arg:
    - args:
      - too: {{ tag }}
";

pub(super) fn rows() -> Vec<Row> {
    let rows = [tags(), files(), guards(), at_run_time()];
    rows.into_iter().flatten().collect()
}

fn tags() -> Vec<Row> {
    vec![
        Row::new("a rule without wildcards is for one tag")
            .sls(SEEN)
            .fire("$TAG", json!({}))
            .fire("$TAG/more", json!({}))
            .fire("more/$TAG", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("a star stands for anything, slashes too")
            .rule("'$TAG/*/end': [$DIR/a.sls]")
            .sls(SEEN)
            .fire("$TAG/a/b/end", json!({}))
            .fire("$TAG/end", json!({}))
            .fire("$TAG//end", json!({}))
            .gives(&[
                r#"runner.test.arg [{"tag":"$TAG/a/b/end"}]"#,
                r#"runner.test.arg [{"tag":"$TAG//end"}]"#,
            ]),
        Row::new("a question mark stands for one character")
            .rule("'$TAG/?': [$DIR/a.sls]")
            .sls(SEEN)
            .fire("$TAG/", json!({}))
            .fire("$TAG/ü", json!({}))
            .fire("$TAG/ab", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG/ü"}]"#]),
        Row::new("brackets stand for one of their characters")
            .rule("'$TAG/[a-c]': [$DIR/a.sls]")
            .sls(SEEN)
            .fire("$TAG/d", json!({}))
            .fire("$TAG/b", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG/b"}]"#]),
        Row::new("brackets with an exclamation mark stand for any other")
            .rule("'$TAG/[!a-c]': [$DIR/a.sls]")
            .sls(SEEN)
            .fire("$TAG/b", json!({}))
            .fire("$TAG/d", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG/d"}]"#]),
        Row::new("a bracket in a tag has to be in brackets in the rule")
            .rule("'$TAG/[[]1]': [$DIR/a.sls]")
            .rule("'$TAG/[1]': [$DIR/b.sls]")
            .sls(SEEN)
            .file("b.sls", SEEN_TOO)
            .fire("$TAG/[1]", json!({}))
            .fire("$TAG/1", json!({}))
            .gives(&[
                r#"runner.test.arg [{"tag":"$TAG/[1]"}]"#,
                r#"runner.test.arg [{"too":"$TAG/1"}]"#,
            ]),
        Row::new("upper and lower case are different")
            .rule("'$TAG/Up': [$DIR/a.sls]")
            .sls(SEEN)
            .fire("$TAG/up", json!({}))
            .fire("$TAG/Up", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG/Up"}]"#]),
        Row::new("all rules that match count, in their order")
            .rule("'$TAG*': [$DIR/a.sls]")
            .rule("'*$TAG': [$DIR/b.sls]")
            .sls(SEEN)
            .file("b.sls", SEEN_TOO)
            .gives(&[
                r#"runner.test.arg [{"tag":"$TAG"}]"#,
                r#"runner.test.arg [{"too":"$TAG"}]"#,
            ]),
        Row::new("a rule may name one file without a list")
            .rule("$TAG: $DIR/a.sls")
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("an entry with two tags is passed over")
            .rule("{$TAG: [$DIR/a.sls], $TAG/more: [$DIR/a.sls]}")
            .rule("$TAG: [$DIR/b.sls]")
            .sls(SEEN)
            .file("b.sls", SEEN_TOO)
            .fire("$TAG", json!({}))
            .fire("$TAG/more", json!({}))
            .gives(&[r#"runner.test.arg [{"too":"$TAG"}]"#]),
        Row::new("events are reacted to in their order")
            .sls("seen:\n  runner.test.arg:\n    - args: {number: {{ data['number'] }}}\n")
            .fire("$TAG", json!({"number": 1}))
            .fire("$TAG", json!({"number": 2}))
            .fire("$TAG", json!({"number": 3}))
            .fire("$TAG", json!({"number": 4}))
            .gives(&[
                r#"runner.test.arg [{"number":1}]"#,
                r#"runner.test.arg [{"number":2}]"#,
                r#"runner.test.arg [{"number":3}]"#,
                r#"runner.test.arg [{"number":4}]"#,
            ]),
    ]
}

fn files() -> Vec<Row> {
    vec![
        Row::new("several files react together")
            .rule("$TAG: [$DIR/a.sls, $DIR/b.sls]")
            .sls(SEEN)
            .file("b.sls", SEEN_TOO)
            .gives(&[
                r#"runner.test.arg [{"tag":"$TAG"}]"#,
                r#"runner.test.arg [{"too":"$TAG"}]"#,
            ]),
        Row::new("of two files with the same id the later counts")
            .rule("$TAG: [$DIR/a.sls, $DIR/b.sls]")
            .sls(SEEN)
            .file(
                "b.sls",
                "seen:\n  runner.test.arg:\n    - args: {later: true}\n",
            )
            .gives(&[r#"runner.test.arg [{"later":true}]"#]),
        Row::new("a file that is named twice reacts once")
            .rule("$TAG: [$DIR/a.sls, $DIR/a.sls]")
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("a path may be a glob")
            .rule("$TAG: ['$DIR/many/*.sls']")
            .file("many/1.sls", SEEN)
            .file("many/2.sls", SEEN_TOO)
            .file("many/3.txt", "third:\n  runner.test.arg: []\n")
            .gives(&[
                r#"runner.test.arg [{"tag":"$TAG"}]"#,
                r#"runner.test.arg [{"too":"$TAG"}]"#,
            ]),
        Row::new("a file of the file server")
            .rule("$TAG: ['salt://$TAG.sls']")
            .file("$ROOT/files/$TAG.sls", SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("a file is read anew for each event")
            .sls(SEEN)
            .fire("$TAG", json!({}))
            .write("a.sls", SEEN_TOO)
            .fire("$TAG", json!({}))
            .gives(&[
                r#"runner.test.arg [{"tag":"$TAG"}]"#,
                r#"runner.test.arg [{"too":"$TAG"}]"#,
            ]),
        Row::new("a missing file does not keep the others from reacting")
            .rule("$TAG: [$DIR/none.sls, 'salt://$TAG/none.sls', $DIR/a.sls]")
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("nor does one that is no YAML")
            .rule("$TAG: [$DIR/broken.sls, $DIR/a.sls]")
            .file("broken.sls", "broken: [\n")
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("nor one whose template cannot be parsed")
            .rule("$TAG: [$DIR/broken.sls, $DIR/a.sls]")
            .file("broken.sls", "{% if %}\n")
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("nor one whose template asks for what is not there")
            .rule("$TAG: [$DIR/broken.sls, $DIR/a.sls]")
            .file(
                "broken.sls",
                "then:\n  runner.test.arg:\n    - args: {a: {{ data['x']['y'] }}}\n",
            )
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("nor one that is a list")
            .rule("$TAG: [$DIR/broken.sls, $DIR/a.sls]")
            .file("broken.sls", "- then\n")
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("a file that includes others is not rendered")
            .rule("$TAG: [$DIR/broken.sls, $DIR/a.sls]")
            .file(
                "broken.sls",
                "include: [other]\nthen:\n  runner.test.arg:\n    - args: {a: 1}\n",
            )
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("a file that renders to nothing reacts with nothing")
            .rule("$TAG: [$DIR/empty.sls, $DIR/a.sls]")
            .file(
                "empty.sls",
                "{% if data.get('act') %}\nthen:\n  runner.test.arg: []\n{% endif %}\n",
            )
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("an id without a function silences every file of the event")
            .rule("$TAG: [$DIR/a.sls, $DIR/broken.sls]")
            .sls(SEEN)
            .file("broken.sls", "broken:\n  runner.test.arg: true\n")
            .gives(&[])
            .ours(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("an id that is no mapping silences its file alone")
            .rule("$TAG: [$DIR/a.sls, $DIR/broken.sls]")
            .sls(SEEN)
            .file("broken.sls", "broken: 7\n")
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
    ]
}

fn guards() -> Vec<Row> {
    vec![
        Row::new("what the reactor does itself is not reacted to")
            .rule("'salt/run/*': [$DIR/loop.sls]")
            .rule("$TAG: [$DIR/a.sls]")
            .file(
                "loop.sls",
                "{% if data['fun'] == 'runner.test.arg' %}
loop:
  runner.test.arg:
    - args: {loop: {{ tag }}}
{% endif %}
",
            )
            .sls(SEEN)
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("an event that says it is of the reactor is not reacted to")
            .sls(SEEN)
            .fire("$TAG", json!({"user": "Reactor"}))
            .fire("$TAG", json!({"user": "reactor"}))
            .fire("$TAG", json!({"data": {"user": "Reactor"}}))
            .gives(&[
                r#"runner.test.arg [{"tag":"$TAG"}]"#,
                r#"runner.test.arg [{"tag":"$TAG"}]"#,
            ]),
        Row::new("a job that the reactor published is an event like any other")
            .rule("'salt/job/*/new': [$DIR/job.sls]")
            .rule("$TAG: [$DIR/a.sls]")
            .file(
                "job.sls",
                "{% if data['arg'] == ['$TAG'] %}
seen:
  runner.test.arg:
    - args: {tgt: {{ data['tgt'] }}, minions: {{ data['minions'] }}}
{% endif %}
",
            )
            .sls("job:\n  local.test.echo:\n    - tgt: m1\n    - arg: [$TAG]\n")
            .gives(&[
                r#"local test.echo m1 (glob) ["$TAG"]"#,
                r#"runner.test.arg [{"minions":["m1"],"tgt":"m1"}]"#,
            ]),
        Row::new("an event that a reaction fires is reacted to")
            .rule("$TAG/first: [$DIR/first.sls]")
            .rule("$TAG/second: [$DIR/second.sls]")
            .file(
                "first.sls",
                "send:\n  runner.event.send:\n    - args:\n      - tag: $TAG/second\n",
            )
            .file(
                "second.sls",
                "seen:\n  runner.test.arg:\n    - args: {a: {{ tag }}}\n",
            )
            .fire("$TAG/first", json!({}))
            .gives(&[
                r#"runner.event.send [{"tag":"$TAG/second"}]"#,
                r#"runner.test.arg [{"a":"$TAG/second"}]"#,
            ]),
    ]
}

fn at_run_time() -> Vec<Row> {
    vec![
        Row::new("a rule can be added and deleted while the master runs")
            .rule("$TAG/other: []")
            .sls(SEEN)
            .fire("$TAG", json!({}))
            .ask(
                "reactor.add",
                json!({"event": "$TAG", "reactors": "$DIR/a.sls"}),
                json!({"status": true, "comment": "Reactor added."}),
            )
            .ask(
                "reactor.add",
                json!({"event": "$TAG", "reactors": "$DIR/b.sls"}),
                json!({"status": false, "comment": "Reactor already exists."}),
            )
            .fire("$TAG", json!({}))
            .ask(
                "reactor.delete",
                json!({"event": "$TAG"}),
                json!({"status": true, "comment": "Reactor deleted."}),
            )
            .ask(
                "reactor.delete",
                json!({"event": "$TAG"}),
                json!({"status": false, "comment": "Reactor does not exists."}),
            )
            .fire("$TAG", json!({}))
            // Stock 3008 changes a copy of the rules, which nothing else looks at.
            .gives(&[])
            .older(&[r#"runner.test.arg [{"tag":"$TAG"}]"#])
            .ours(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("who is no leader does not react")
            .sls(SEEN)
            .ask("reactor.is_leader", json!({}), json!(true))
            .ask("reactor.set_leader", json!({"value": false}), json!(false))
            .ask("reactor.is_leader", json!({}), json!(false))
            .fire("$TAG", json!({}))
            .ask("reactor.set_leader", json!({"value": true}), json!(true))
            .fire("$TAG", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
        Row::new("an order to the reactor without the master's key is not followed")
            .rule("$TAG/other: []")
            .sls(SEEN)
            .fire(
                "salt/reactors/manage/add",
                json!({"event": "$TAG", "reactors": ["$DIR/a.sls"], "key": "guessed"}),
            )
            .fire("$TAG", json!({}))
            .gives(&[]),
    ]
}

/// Rules that the configuration does not hold but names a file for.
pub(super) fn rows_of_a_file() -> Vec<Row> {
    vec![
        Row::new("rules of a file")
            .rule("'$TAG/*': [$DIR/a.sls]")
            .sls(SEEN)
            .fire("$TAG/1", json!({}))
            .fire("$TAG", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG/1"}]"#]),
        Row::new("the file is read anew for each event")
            .rule("$TAG/other: []")
            .sls(SEEN)
            .fire("$TAG", json!({}))
            .write(
                "$ROOT/rules.yml",
                "- 'marker/*': $ROOT/marker.sls\n- $TAG: $DIR/a.sls\n",
            )
            .wait_for(
                "reactor.list",
                json!({}),
                json!([{"marker/*": "$ROOT/marker.sls"}, {"$TAG": "$DIR/a.sls"}]),
            )
            .fire("$TAG", json!({}))
            .gives(&[r#"runner.test.arg [{"tag":"$TAG"}]"#]),
    ]
}
