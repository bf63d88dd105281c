//! Rendering of reaction files: tag and data of events from the master and from minions, functions
//! in templates, renderers other than Jinja and YAML.

use serde_json::{Value, json};

use super::row::Row;

pub(super) fn rows() -> Vec<Row> {
    let rows = [data(), renderers()];
    rows.into_iter().flatten().collect()
}

/// Data of every kind that an event can have.
fn values() -> Value {
    json!({
        "text": "größe: \"1\"", "number": -7, "part": 0.5, "truth": true, "none": null,
        "list": [1, "two", []], "map": {"a": {"b": "c"}},
    })
}

fn data() -> Vec<Row> {
    vec![
        Row::new("data keep their types through the json filter")
            .sls(
                "
seen:
  runner.test.arg:
    - args:
{%- for name in ['text', 'number', 'part', 'truth', 'none', 'list', 'map'] %}
      - {{ name }}: {{ data[name] | json }}
{%- endfor %}
",
            )
            .fire("$TAG", values())
            .gives(&[concat!(
                r#"runner.test.arg [{"list":[1,"two",[]],"map":{"a":{"b":"c"}},"none":null,"#,
                r#""number":-7,"part":0.5,"text":"größe: \"1\"","truth":true}]"#
            )]),
        Row::new("data printed as they are become what YAML makes of Python's text")
            .sls(
                "
seen:
  runner.test.arg:
    - args:
{%- for name in ['number', 'part', 'truth', 'none', 'list', 'map'] %}
      - {{ name }}: {{ data[name] }}
{%- endfor %}
",
            )
            .fire("$TAG", values())
            .gives(&[concat!(
                r#"runner.test.arg [{"list":[1,"two",[]],"map":{"a":{"b":"c"}},"#,
                r#""none":"None","number":-7,"part":0.5,"truth":true}]"#
            )]),
        Row::new("attributes, defaults and parts of the tag")
            .sls(
                "
seen:
  runner.test.arg:
    - args:
      - last: {{ tag.split('/')[-1] }}
      - deep: {{ data.map.a.b }}
      - none: {{ data.get('absent', 'default') }}
      - other: {{ data.absent | default('other') }}
",
            )
            .rule("'$TAG/*': [$DIR/a.sls]")
            .fire("$TAG/end", values())
            .gives(&[
                r#"runner.test.arg [{"deep":"c","last":"end","none":"default","other":"other"}]"#,
            ]),
        Row::new("templates branch and loop over data")
            .sls(
                "
{% for name in data['names'] if name != 'b' %}
seen {{ name }}:
  runner.test.arg:
    - args: {name: {{ name }}}
{% endfor %}
",
            )
            .fire("$TAG", json!({"names": ["a", "b", "c"]}))
            .gives(&[
                r#"runner.test.arg [{"name":"a"}]"#,
                r#"runner.test.arg [{"name":"c"}]"#,
            ]),
        Row::new("an event has the time at which it was fired")
            .sls("seen:\n  runner.test.arg:\n    - args: {has: {{ '_stamp' in data }}}\n")
            .gives(&[r#"runner.test.arg [{"has":true}]"#]),
        Row::new("of a minion's event the data are the whole load")
            .sls(
                "
seen:
  runner.test.arg:
    - args:
      - id: {{ data['id'] }}
      - cmd: {{ data['cmd'] }}
      - tag: {{ data['tag'] }}
      - size: {{ data['data']['size'] }}
",
            )
            .minion(json!({"tag": "$TAG", "data": {"size": 3}}))
            .gives(&[
                r#"runner.test.arg [{"cmd":"_minion_event","id":"m1","size":3,"tag":"$TAG"}]"#,
            ]),
        Row::new("of an event that a minion sends in a list they are its own")
            .sls(
                "
seen:
  runner.test.arg:
    - args: {names: {{ data.keys() | sort | join('-') }}}
",
            )
            .minion(json!({"events": [{"tag": "$TAG", "data": {"size": 3, "id": "m1"}}]}))
            .gives(&[r#"runner.test.arg [{"names":"_stamp-id-size"}]"#]),
    ]
}

fn renderers() -> Vec<Row> {
    vec![
        Row::new("functions of the machine and the master's options are there in templates")
            .sls(
                "
seen:
  runner.test.arg:
    - args:
      - echo: {{ salt['test.echo']('said') }}
      - run: {{ salt['cmd.run']('echo ran') }}
      - threads: {{ opts['reactor_worker_threads'] }}
",
            )
            .gives(&[r#"runner.test.arg [{"echo":"said","run":"ran","threads":1}]"#]),
        Row::new("grains of the machine are there in stock's templates")
            .sls("seen:\n  runner.test.arg:\n    - args: {kernel: {{ grains.get('kernel') }}}\n")
            .gives(&[r#"runner.test.arg [{"kernel":"Linux"}]"#])
            // Those are of the Python that runs Salt, which we may not have.
            .ours(&[r#"runner.test.arg [{"kernel":"None"}]"#]),
        Row::new("a template can import one of the file server")
            .file(
                "$ROOT/files/$TAG.jinja",
                "{% macro double(n) %}{{ n * 2 }}{% endmacro %}",
            )
            .sls(
                "
{% from '$TAG.jinja' import double %}
seen:
  runner.test.arg:
    - args: {double: {{ double(data['number']) }}}
",
            )
            .fire("$TAG", json!({"number": 21}))
            .gives(&[r#"runner.test.arg [{"double":42}]"#]),
        Row::new("only YAML")
            .sls("#!yaml\nseen:\n  runner.test.arg:\n    - args: {text: '{{ tag }}'}\n")
            .gives(&[r#"runner.test.arg [{"text":"{{ tag }}"}]"#]),
        Row::new("only JSON")
            .sls("#!json\n{\"seen\": {\"runner.test.arg\": [{\"args\": {\"a\": [1, null]}}]}}\n")
            .gives(&[r#"runner.test.arg [{"a":[1,null]}]"#]),
        Row::new("Jinja, then JSON")
            .sls(
                r#"#!jinja|json
{"seen": {"runner.test.arg": [{"args": {{ data['args'] | json }} }]}}
"#,
            )
            .fire("$TAG", json!({"args": {"b": [true]}}))
            .gives(&[r#"runner.test.arg [{"b":[true]}]"#]),
        Row::new("Python")
            .sls(
                "#!py
def run():
    args = {'tag': tag, 'size': data['size'], 'echo': __salt__['test.echo']('said')}
    return {'seen': {'runner.test.arg': [{'args': args}]}}
",
            )
            .fire("$TAG", json!({"size": 3}))
            .gives(&[r#"runner.test.arg [{"echo":"said","size":3,"tag":"$TAG"}]"#]),
        Row::new("Python that raises does not keep other files from reacting")
            .rule("$TAG: [$DIR/broken.sls, $DIR/a.sls]")
            .file("broken.sls", "#!py\ndef run():\n    return 1 / 0\n")
            .sls("seen:\n  runner.test.arg:\n    - args: {a: 1}\n")
            .gives(&[r#"runner.test.arg [{"a":1}]"#]),
        Row::new("a renderer that there is not")
            .rule("$TAG: [$DIR/broken.sls, $DIR/a.sls]")
            .file(
                "broken.sls",
                "#!nosuch\nthen:\n  runner.test.arg:\n    - args: {b: 1}\n",
            )
            .sls("seen:\n  runner.test.arg:\n    - args: {a: 1}\n")
            .gives(&[r#"runner.test.arg [{"a":1}]"#]),
    ]
}
