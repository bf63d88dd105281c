//! Reactions: their four kinds, the forms of their arguments, and the order of several.

use serde_json::json;

use super::row::Row;

pub(super) fn rows() -> Vec<Row> {
    let rows = [jobs(), functions(), wrong(), order()];
    rows.into_iter().flatten().collect()
}

fn jobs() -> Vec<Row> {
    vec![
        Row::new("a job with keyword arguments")
            .sls(
                "
job:
  local.test.arg:
    - tgt: m1
    - args:
      - cmd: echo {{ tag }}
      - number: 1
",
            )
            .gives(&[
                r#"local test.arg m1 (glob) [{"__kwarg__":true,"cmd":"echo $TAG","number":1}]"#,
            ]),
        Row::new("a job with the older name of the kind, and the older form of arguments")
            .sls(
                "
job:
  cmd.test.arg:
    - tgt: m1
    - arg:
      - one
      - 2
    - kwarg:
        three: [3]
",
            )
            .gives(&[r#"local test.arg m1 (glob) ["one",2,{"__kwarg__":true,"three":[3]}]"#]),
        Row::new("a job for a list of minions, some of whom there are not")
            .sls("job:\n  local.test.ping:\n    - tgt: [m1, m2]\n    - tgt_type: list\n")
            .gives(&[r#"local test.ping ["m1","m2"] (list) []"#]),
        Row::new("a job by a compound target")
            .sls(
                "
job:
  local.test.ping:
    - tgt: 'm* and not L@m2'
    - tgt_type: compound
",
            )
            .gives(&[r#"local test.ping m* and not L@m2 (compound) []"#]),
        Row::new("a job by a regular expression")
            .sls("job:\n  local.test.ping:\n    - tgt: 'm[0-9]'\n    - tgt_type: pcre\n")
            .gives(&[r#"local test.ping m[0-9] (pcre) []"#]),
        Row::new("a job with a returner and metadata")
            .sls(
                "
job:
  local.test.ping:
    - tgt: m1
    - ret: local
    - metadata: {a: 1}
",
            )
            .gives(&[r#"local test.ping m1 (glob) []"#]),
        Row::new("a single argument that is no list is one for each of its letters")
            .sls("job:\n  local.test.echo:\n    - tgt: m1\n    - arg: text\n")
            .gives(&[r#"local test.echo m1 (glob) ["t","e","x","t"]"#]),
        Row::new("a job for nobody is none")
            .sls("job:\n  local.test.ping:\n    - tgt: nobody\n")
            .gives(&[]),
        Row::new("a function that is not in the name of the kind")
            .sls("job:\n  local:\n    - test.ping\n    - tgt: m1\n")
            .gives(&[r#"local test.ping m1 (glob) []"#]),
    ]
}

fn functions() -> Vec<Row> {
    vec![
        Row::new("arguments as a mapping")
            .sls("call:\n  runner.test.arg:\n    - args: {a: 1, b: [x, y]}\n")
            .gives(&[r#"runner.test.arg [{"a":1,"b":["x","y"]}]"#]),
        Row::new("arguments as a list of mappings")
            .sls("call:\n  runner.test.arg:\n    - args:\n      - a: 1\n      - b: two\n")
            .gives(&[r#"runner.test.arg [{"a":1,"b":"two"}]"#]),
        Row::new("arguments in the older form")
            .sls("call:\n  runner.test.arg:\n    - arg: [1, two]\n    - kwarg: {three: 3}\n")
            .gives(&[r#"runner.test.arg [1,"two",{"three":3}]"#]),
        Row::new("positional arguments alone are a keyword argument too, where any is taken")
            .sls("call:\n  runner.test.arg:\n    - arg: [1, two]\n")
            .gives(&[r#"runner.test.arg [1,"two",{"arg":[1,"two"]}]"#]),
        Row::new("flat arguments")
            .sls("call:\n  runner.test.metasyntactic:\n    - locality: uk\n")
            .gives(&[r#"runner.test.metasyntactic [{"locality":"uk"}]"#]),
        Row::new("flat arguments for a function that takes any")
            .sls("call:\n  runner.test.arg:\n    - one: 1\n    - two: zwei\n")
            .gives(&[r#"runner.test.arg [{"one":1,"two":"zwei"}]"#]),
        Row::new("no arguments, in the short form")
            .sls("call: runner.test.metasyntactic\n")
            .gives(&[r#"runner.test.metasyntactic [{"locality":"us"}]"#])
            // For the old form our events carry the given arguments, without the defaults.
            .ours(&["runner.test.metasyntactic []"]),
        Row::new("newer arguments count before older ones")
            .sls(
                "
call:
  runner.test.arg:
    - args: {a: 1}
    - arg: [2]
    - kwarg: {b: 3}
",
            )
            .gives(&[r#"runner.test.arg [{"a":1}]"#]),
        Row::new("a name of its own is passed over")
            .sls("call:\n  runner.test.arg:\n    - name: named\n    - args: {a: 1}\n")
            .gives(&[r#"runner.test.arg [{"a":1}]"#]),
        Row::new("a wheel function with the newer form")
            .sls("call:\n  wheel.key.name_match:\n    - args: {match: m1}\n")
            .gives(&[r#"wheel.key.name_match [{"match":"m1"}] -> {"minions":["m1"]}"#]),
        Row::new("a wheel function with flat arguments")
            .sls("call:\n  wheel.key.name_match:\n    - match: m1\n")
            .gives(&[r#"wheel.key.name_match ["m1"] -> {"minions":["m1"]}"#]),
        Row::new("a key is accepted as its minion asks to be let in")
            .rule("salt/auth: [$DIR/a.sls]")
            .sls(
                "
{% if data.get('act') == 'pend' and data['id'].startswith('new-') %}
accept:
  wheel.key.accept:
    - args:
      - match: {{ data['id'] }}
{% endif %}
",
            )
            .file("$ROOT/pki/minions_pre/new-1", include_str!("key.pem"))
            .fire(
                "salt/auth",
                json!({"act": "accept", "id": "new-1", "result": true}),
            )
            .fire(
                "salt/auth",
                json!({"act": "pend", "id": "new-1", "result": true}),
            )
            .gives(&[r#"wheel.key.accept [{"match":"new-1"}] -> {"minions":["new-1"]}"#]),
        Row::new("a function of the machine, with keyword arguments")
            .sls(
                "
write:
  caller.file.write:
    - args:
      - path: $DIR/out/new
      - args: {{ tag }}
",
            )
            .gives(&["file new: $TAG"]),
        Row::new("a function of the machine, with the older form of arguments")
            .sls("write:\n  caller.file.write:\n    - args: [$DIR/out/old, {{ tag }}, more]\n")
            .gives(&["file old: $TAG\nmore"]),
        Row::new("a function of the machine, with positional arguments")
            .sls("write:\n  caller.file.touch:\n    - arg: [$DIR/out/touched]\n")
            .gives(&["file touched: "]),
        Row::new("two kinds under one id")
            .sls(
                "
both:
  runner.test.arg:
    - args: {a: 1}
  local.test.ping:
    - tgt: m1
",
            )
            .gives(&[
                r#"runner.test.arg [{"a":1}]"#,
                r#"local test.ping m1 (glob) []"#,
            ]),
        Row::new("a reaction for each of several names")
            .sls("call:\n  runner.test.metasyntactic:\n    - names: [a, b]\n    - locality: uk\n")
            .gives(&[
                r#"runner.test.metasyntactic [{"locality":"uk"}]"#,
                r#"runner.test.metasyntactic [{"locality":"uk"}]"#,
            ]),
        Row::new("an orchestration that is given the event")
            .file(
                "$ROOT/files/orch.sls",
                "
done:
  test.succeed_without_changes:
    - name: {{ pillar['tag'] }}
",
            )
            .sls(
                "
run:
  runner.state.orchestrate:
    - args:
      - mods: orch
      - pillar: {tag: {{ tag }}}
",
            )
            .gives(&[r#"runner.state.orchestrate [{"mods":"orch","pillar":{"tag":"$TAG"}}]"#]),
    ]
}

/// The second reaction of a row whose first one is wrong: it goes a way of its own.
const THEN: &str = "
then:
  local.test.echo:
    - tgt: m1
    - arg: [then]
";

fn wrong() -> Vec<Row> {
    vec![
        Row::new("a function that there is not is passed over in silence by 3008")
            .sls(&format!(
                "a:\n  runner.no.such:\n    - args: {{a: 1}}\n{THEN}"
            ))
            .gives(&[r#"local test.echo m1 (glob) ["then"]"#])
            .older(&[
                "runner.no.such null failed",
                r#"local test.echo m1 (glob) ["then"]"#,
            ])
            // Rather said than not, as in the older releases.
            .ours(&[
                "runner.no.such null failed",
                r#"local test.echo m1 (glob) ["then"]"#,
            ]),
        Row::new("one with the older form of arguments is not begun")
            .sls(&format!("a:\n  runner.no.such:\n    - a: 1\n{THEN}"))
            .gives(&[r#"local test.echo m1 (glob) ["then"]"#])
            // Only Python knows whether there is a function that is not built in.
            .ours(&[
                "runner.no.such null failed",
                r#"local test.echo m1 (glob) ["then"]"#,
            ]),
        Row::new("arguments that are a list of texts are names without values")
            .sls(&format!(
                "a:\n  runner.test.arg:\n    - args: [one, two]\n{THEN}"
            ))
            .gives(&[
                r#"runner.test.arg [{"one":null,"two":null}]"#,
                r#"local test.echo m1 (glob) ["then"]"#,
            ]),
        Row::new("arguments that are a text are none, and the reaction is not begun")
            .sls(&format!("a:\n  runner.test.arg:\n    - args: one\n{THEN}"))
            .gives(&[r#"local test.echo m1 (glob) ["then"]"#]),
        Row::new("a flat argument that the function does not take")
            .sls(&format!(
                "a:\n  runner.test.metasyntactic:\n    - nonsense: 1\n{THEN}"
            ))
            .gives(&[r#"local test.echo m1 (glob) ["then"]"#]),
        Row::new("a function that raises")
            .sls(&format!(
                "a:\n  runner.error.error:\n    - args: {{name: ValueError}}\n{THEN}"
            ))
            .gives(&[
                r#"runner.error.error [{"name":"ValueError"}] failed"#,
                r#"local test.echo m1 (glob) ["then"]"#,
            ]),
        Row::new("a job without a target is none, and the next reaction runs")
            .sls(&format!("a:\n  local.test.ping:\n    - arg: []\n{THEN}"))
            .gives(&[r#"local test.echo m1 (glob) ["then"]"#]),
    ]
}

fn order() -> Vec<Row> {
    vec![
        Row::new("without an order, reactions are sorted by kind, name and function")
            .sls(
                "
z:
  runner.test.arg:
    - args: {id: z}
a:
  runner.test.arg:
    - args: {id: a}
m:
  wheel.key.name_match:
    - args: {match: m1}
",
            )
            .gives(&[
                r#"runner.test.arg [{"id":"a"}]"#,
                r#"runner.test.arg [{"id":"z"}]"#,
                r#"wheel.key.name_match [{"match":"m1"}] -> {"minions":["m1"]}"#,
            ]),
        Row::new("an order counts first")
            .sls(
                "
a:
  runner.test.arg:
    - order: last
    - args: {id: a}
b:
  runner.test.arg:
    - args: {id: b}
c:
  runner.test.arg:
    - order: 2
    - args: {id: c}
d:
  runner.test.arg:
    - order: 1
    - args: {id: d}
e:
  runner.test.arg:
    - order: first
    - args: {id: e}
",
            )
            .gives(&[
                r#"runner.test.arg [{"id":"e"}]"#,
                r#"runner.test.arg [{"id":"d"}]"#,
                r#"runner.test.arg [{"id":"c"}]"#,
                r#"runner.test.arg [{"id":"b"}]"#,
                r#"runner.test.arg [{"id":"a"}]"#,
            ]),
        Row::new("a requisite counts in 3008")
            .sls(
                "
a:
  runner.test.arg:
    - args: {id: a}
    - require:
      - runner: b
b:
  runner.test.arg:
    - args: {id: b}
",
            )
            .gives(&[
                r#"runner.test.arg [{"id":"b"}]"#,
                r#"runner.test.arg [{"id":"a"}]"#,
            ])
            .older(&[
                r#"runner.test.arg [{"id":"a"}]"#,
                r#"runner.test.arg [{"id":"b"}]"#,
            ]),
        Row::new("a requisite that nothing fulfils silences the event in 3008")
            .sls(
                "
a:
  runner.test.arg:
    - args: {id: a}
    - require:
      - runner: none
",
            )
            .gives(&[])
            .older(&[r#"runner.test.arg [{"id":"a"}]"#]),
        Row::new("requisites in a circle silence the event in 3008")
            .sls(
                "
a:
  runner.test.arg:
    - args: {id: a}
    - require: [b]
b:
  runner.test.arg:
    - args: {id: b}
    - require: [a]
",
            )
            .gives(&[])
            .older(&[
                r#"runner.test.arg [{"id":"a"}]"#,
                r#"runner.test.arg [{"id":"b"}]"#,
            ]),
    ]
}
