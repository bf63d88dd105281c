//! Bounds of a template: on time, output, nesting and paths. And the pipeline of renderers on
//! files, beside the templates that `render_stock.rs` compares.

use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{self, Context, Limits, LoadError, Loader};
use saltern_content::render::{ErrorClass, RenderError, Renderers, render, set_sls_context};
use saltern_wire::msgpack::Value;

/// Knows one file, outside of every root.
struct Outside;

impl Loader for Outside {
    fn load(&self, path: &str) -> Result<Option<String>, LoadError> {
        assert!(
            !path.starts_with('/') && path.split('/').all(|part| part != ".."),
            "a path that leaves the root was asked for: {path:?}"
        );
        Ok((path == "me.jinja").then(|| "{% include 'me.jinja' %}".to_owned()))
    }
}

fn context(limits: Limits) -> Context {
    Context {
        values: Vec::new(),
        functions: Arc::new(Registry::new()),
        loader: Arc::new(Outside),
        clock: Clock::system(),
        limits,
        python: None,
    }
}

fn fails(template: &str, limits: Limits) -> RenderError {
    match jinja::render(template, "bad.sls", &context(limits)) {
        Ok(text) => panic!("{template:?} gave {} bytes", text.len()),
        Err(error) => error,
    }
}

#[test]
fn endless_templates_hit_a_limit() {
    let limits = Limits {
        time: Duration::from_secs(20),
        deadline: None,
        processor: None,
        output: 1 << 20,
        steps: 2_000_000,
        rounds: 200_000,
        depth: 300,
    };
    let many = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}";
    for template in [
        many,
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% for a in range(9) %}{{ f() }}{% endfor %}{% endmacro %}{{ f() }}",
        "{% include 'me.jinja' %}",
        "{{ 'x' * 99999999999 }}",
        "{{ [0] * 99999999999 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{% set x = 'xxxxxxxxxxxxxxxx' * 9999 %}{% for a in range(9999) %}{{ x }}{% endfor %}",
        "{% set l = [0] %}{% for a in range(99) %}{% do l.extend(l) %}{% endfor %}",
        "{% set ns = namespace(t='x') %}{% for a in range(99) %}{% set ns.t = ns.t ~ ns.t %}\
         {% endfor %}",
        "{{ range(30) | permutations | list | length }}",
        "{{ [range(999)] | map('list') | first | product(range(999), range(999)) | length }}",
        "{% set out %}{% for a in range(99999) %}0123456789ABCDEF0123456789ABCDEF{% endfor %}\
         {% endset %}",
        "{{ '::/0' | network_hosts }}",
        "{{ 'x' | indent(99999999) | indent(99999) | center(9999999999) | center(99999) * 999 }}",
    ] {
        let error = fails(template, limits);
        assert!(
            matches!(error.class, ErrorClass::Limit | ErrorClass::Other),
            "{template:?}: {error:?}"
        );
    }
}

#[test]
fn render_deadline_is_kept() {
    let limits = Limits {
        time: Duration::ZERO,
        ..Limits::DEFAULT
    };
    let template = "{% for a in range(9999) %}{{ a }}{% endfor %}";
    assert_eq!(fails(template, limits).class, ErrorClass::Limit);
}

#[test]
fn total_deadline_precedes_the_time_of_a_part() {
    let over = Limits {
        deadline: Some(tokio::time::Instant::now()),
        ..Limits::DEFAULT
    };
    assert_eq!(over.left_of(Duration::MAX), Duration::ZERO);
    assert_eq!(Limits::DEFAULT.left_of(Duration::MAX), Duration::MAX);
    let message = "-----BEGIN PGP MESSAGE-----\n\nx\n-----END PGP MESSAGE-----\n";
    let mut renderers = Renderers::default();
    // A renderer that ran would fail with another error than a refused one.
    renderers.gpg.program = "/nonexistent/gpg".into();
    for source in [
        format!("#!gpg\n{message}"),
        "#!jinja\n{% for a in [1] %}{% endfor %}".into(),
    ] {
        let error = render(&source, "x.sls", &renderers, &context(over)).expect_err("no time");
        assert_eq!(error.class, ErrorClass::Limit, "{error}");
    }
}

#[test]
fn printing_a_cyclic_value_hits_a_limit() {
    let template = "{% set l = [] %}{% do l.append(l) %}{{ l }}";
    assert_eq!(fails(template, Limits::DEFAULT).class, ErrorClass::Limit);
    let template = "{% set d = {} %}{% do d.update(d=d) %}{{ d | yaml }}{{ d | json }}";
    assert_eq!(fails(template, Limits::DEFAULT).class, ErrorClass::Limit);
}

/// Templates that nest `ns.x` as deep as a loop has rounds, each in its own way.
fn nesting() -> Vec<String> {
    let round = |body: &str| {
        format!(
            "{{% set ns = namespace(x=[], o=[]) %}}{{% macro f() %}}{{% set ns.x = varargs %}}\
             {{% endmacro %}}{{% macro g() %}}{{% set ns.x = kwargs %}}{{% endmacro %}}\
             {{% set ns.o = ns.x %}}{{% for a in range(50000) %}}{body}{{% endfor %}}"
        )
    };
    [
        "{% set ns.x = [ns.x] %}",
        "{% set ns.x = (ns.x,) %}",
        "{% set ns.x = {'a': ns.x} %}",
        "{% set ns.x = [] + [ns.x] %}",
        "{% set ns.x = () + (ns.x,) %}",
        "{% set ns.x = [ns.x] * 1 %}",
        "{% set ns.x = dict(a=ns.x) %}",
        "{% set ns.x = namespace(a=ns.x) %}",
        "{% set ns.x = joiner(ns.x) %}",
        "{% set ns.x = cycler(ns.x) %}",
        "{% set ns.x = dict(a=ns.x).values() %}",
        "{% set ns.x = dict(a=ns.x).items() %}",
        "{% set l = [] %}{% do l.append(ns.x) %}{% set ns.x = l.append %}",
        "{% set l = [] %}{% do l.insert(0, ns.x) %}{% set ns.x = l %}",
        "{% set l = [] %}{% do l.extend([ns.x]) %}{% set ns.x = l %}",
        "{% set d = {} %}{% do d.update({'a': ns.x}) %}{% set ns.x = d %}",
        "{% set d = {} %}{% do d.update(a=ns.x) %}{% set ns.x = d %}",
        "{% set d = {} %}{% do d.setdefault('a', ns.x) %}{% set ns.x = d %}",
        // From the outside to the inside.
        "{% set l = [] %}{% do ns.x.append(l) %}{% set ns.x = l %}",
        "{% set ns.x = [ns.x] | list | batch(1) | first %}",
        "{% set ns.x = [ns.x] | zip([1]) | list %}",
        "{{ f(ns.x) }}",
        "{{ g(a=ns.x) }}",
        "{% with %}{% set old = ns.x %}{% macro h() %}{{ old }}{% endmacro %}\
         {% set ns.x = h %}{% endwith %}",
        "{% for b in [ns.x] %}{% set ns.x = loop %}{% endfor %}",
    ]
    .map(round)
    .into()
}

#[test]
fn value_of_any_depth_is_dropped_without_recursion() {
    for template in nesting() {
        let limits = Limits {
            time: Duration::from_secs(600),
            ..Limits::DEFAULT
        };
        let done = jinja::render(&template, "deep.sls", &context(limits));
        assert_eq!(done, Ok(String::new()), "{template}");
    }
    let straight = format!("{{% set x = [] %}}{}", "{% set x = [x] %}".repeat(5000));
    assert_eq!(
        jinja::render(&straight, "deep.sls", &context(Limits::DEFAULT)),
        Ok(String::new())
    );
}

#[test]
fn value_nested_too_deeply_is_an_error_on_use() {
    let deep = |step: &str| {
        format!(
            "{{% set ns = namespace(x=[], y=[]) %}}{{% for a in range(5000) %}}\
             {{% set ns.x = {} %}}{{% set ns.y = {} %}}{{% endfor %}}",
            step.replace("it", "ns.x"),
            step.replace("it", "ns.y")
        )
    };
    for step in ["[it]", "(it,)", "{'a': it}", "dict(a=it).values()"] {
        for used in [
            "{{ ns.x }}",
            "{{ ns.x | json }}",
            "{{ ns.x | yaml }}",
            "{{ ns.x | pprint }}",
            "{{ ns.x | tojson }}",
            "{{ ns.x == ns.y }}",
            "{{ ns.x in [ns.y] }}",
            "{{ ns.x ~ 'a' }}",
            "{{ [ns.x, ns.y] | sort }}",
            "{{ [ns.x, ns.y] | unique }}",
            "{{ {(ns.x,): 1} }}",
            "{{ 'x' | set_dict_key_value(ns.x) }}",
            "{{ salt['test.echo'](ns.x) }}",
        ] {
            let template = deep(step) + used;
            fails(&template, Limits::DEFAULT);
        }
    }
    let error = fails(&(deep("[it]") + "{{ ns.x }}"), Limits::DEFAULT);
    assert_eq!(error.class, ErrorClass::Limit, "{error}");
}

#[test]
fn exponential_comparison_hits_a_limit() {
    let wide = "{% set ns = namespace(x=[], y=[]) %}{% for a in range(60) %}\
                {% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}\
                {{ ns.x == ns.y }}";
    assert_eq!(fails(wide, Limits::DEFAULT).class, ErrorClass::Limit);
}

#[test]
fn template_name_never_leaves_the_root() {
    for name in [
        "../x",
        "/../x",
        "a/../../x",
        "./../../x",
        "x\\u0000y",
        "/etc/passwd",
    ] {
        let template = format!("{{% include \"{name}\" %}}");
        assert_eq!(
            fails(&template, Limits::DEFAULT).class,
            ErrorClass::Other,
            "{name}"
        );
    }
}

#[test]
fn deep_template_nesting_is_a_syntax_error() {
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(fails(&deep, Limits::DEFAULT).class, ErrorClass::Syntax);
    let lists = format!("{{{{ {}{} }}}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(fails(&lists, Limits::DEFAULT).class, ErrorClass::Syntax);
    let blocks = "{% if true %}".repeat(3000) + &"{% endif %}".repeat(3000);
    assert_eq!(fails(&blocks, Limits::DEFAULT).class, ErrorClass::Syntax);
    let many = 50_000;
    let branches = "{% elif 0 %}".repeat(many);
    for (template, what) in [
        (format!("{{{{ {}1 }}}}", "not ".repeat(many)), "not"),
        (format!("{{{{ {}1 }}}}", "-".repeat(many)), "minus"),
        (format!("{{{{ {}1 }}}}", "not -".repeat(many)), "both"),
        (format!("{{{{ 1{} }}}}", " or 1".repeat(many)), "or"),
        (format!("{{{{ 1{} }}}}", " and 1".repeat(many)), "and"),
        (format!("{{{{ 1{} }}}}", " if 1".repeat(many)), "if"),
        (
            format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(many)),
            "else",
        ),
        (format!("{{{{ 1{} }}}}", "|int".repeat(many)), "filters"),
        (format!("{{{{ 1{} }}}}", " is none".repeat(many)), "tests"),
        (format!("{{{{ a{} }}}}", ".a".repeat(many)), "attributes"),
        (format!("{{{{ a{} }}}}", "[0]".repeat(many)), "items"),
        (format!("{{{{ a{} }}}}", "()".repeat(many)), "calls"),
        (format!("{{{{ {}a }}}}", "a(".repeat(many)), "arguments"),
        (format!("{{% set {}a = 1 %}}", "(".repeat(many)), "targets"),
        (format!("{{% if 0 %}}{branches}{{% endif %}}"), "branches"),
        (
            format!("{{% set a{} %}}{{% endset %}}", "|int".repeat(many)),
            "set",
        ),
        (
            format!("{{% filter int{} %}}{{% endfilter %}}", "|int".repeat(many)),
            "filter",
        ),
    ] {
        assert_eq!(
            fails(&template, Limits::DEFAULT).class,
            ErrorClass::Syntax,
            "{what}"
        );
    }
    let few = format!("{{% if 0 %}}{}x{{% endif %}}", "{% elif 1 %}".repeat(50));
    assert!(jinja::render(&few, "few.sls", &context(Limits::DEFAULT)).is_ok());
}

#[test]
fn errors_name_the_template_and_the_line() {
    let error = fails("a\nb\n{{ nothere }}\n", Limits::DEFAULT);
    assert_eq!((error.class, error.line), (ErrorClass::Undefined, 3));
    assert_eq!(
        error.to_string(),
        "Jinja variable 'nothere' is undefined; line 3 of \"bad.sls\""
    );
    let error = fails(
        "a\n{%- if true -%}\n\n\n{{ 1 / 0 }}\n{% endif %}",
        Limits::DEFAULT,
    );
    assert_eq!((error.class, error.line), (ErrorClass::Other, 5));
    let error = fails("a\n{% if %}", Limits::DEFAULT);
    assert_eq!((error.class, error.line), (ErrorClass::Syntax, 2));
}

#[test]
fn sls_files_render_to_data() {
    let render = |source: &str| {
        let mut context = context(Limits::DEFAULT);
        set_sls_context(&mut context, "/srv/pillar/a/b/init.sls", "a.b");
        render(source, "a/b/init.sls", &Renderers::default(), &context)
    };
    let map = |key: &str, value: Value| Value::Map(vec![(Value::from(key), value)]);
    assert_eq!(render("a: {{ 1 + 1 }}\n"), Ok(map("a", Value::Int(2))));
    assert_eq!(
        render("a: {{ tplfile }} {{ tpldot }}"),
        Ok(map("a", "a/b/init.sls a.b".into()))
    );
    assert_eq!(
        render("#!yaml\na: '{{ x }}'\n"),
        Ok(map("a", "{{ x }}".into()))
    );
    assert_eq!(render("#!json\n{\"a\": 1}"), Ok(map("a", Value::Int(1))));
    assert_eq!(
        render("#!jinja|json\n{\"a\": {{ 1 }}}"),
        Ok(map("a", Value::Int(1)))
    );
    assert_eq!(render("  \n"), Ok(Value::Map(Vec::new())));
    assert_eq!(render("{# nothing #}\n"), Ok(Value::Map(Vec::new())));
    assert_eq!(
        render("{{ nothere }}").map_err(|e| e.class),
        Err(ErrorClass::Undefined)
    );
    assert_eq!(render("a: [").map_err(|e| e.class), Err(ErrorClass::Data));
    assert_eq!(
        render("a: 1\na: 2").map_err(|e| e.class),
        Err(ErrorClass::Data)
    );
    assert_eq!(
        render("#!yaml\na: {{ x }}").map_err(|e| e.class),
        Err(ErrorClass::Data)
    );
    for name in ["py", "mako|yaml", "nosuch"] {
        let error = render(&format!("#!{name}\n")).expect_err("it cannot run");
        assert_eq!(error.class, ErrorClass::Renderer);
        assert!(error.message.contains("Python"), "{error}");
    }
}

#[test]
fn blacklisted_renderer_is_skipped() {
    let mut renderers = Renderers::default();
    renderers.blacklist.push("jinja".to_owned());
    let data = render(
        "a: '{{ 1 }}'",
        "x.sls",
        &renderers,
        &context(Limits::DEFAULT),
    );
    let wanted = Value::Map(vec![(Value::from("a"), Value::from("{{ 1 }}"))]);
    assert_eq!(data, Ok(wanted));
}
