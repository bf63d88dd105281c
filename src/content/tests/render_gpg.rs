//! The `gpg` renderer with a program in the place of gpg that knows good messages from bad ones.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{Context, Limits, NoTemplates};
use saltern_content::render::{ErrorClass, RenderError, Renderers, render};
use saltern_wire::msgpack::Value;

/// Prints what stands in a good message after the word `good`; refuses others.
const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --homedir ] && [ -d \"$2\" ] || exit 9
text=$(sed -n 's/^good //p')
[ -n \"$text\" ] && printf %s \"$text\" || exit 2
";

fn message(text: &str) -> String {
    format!("-----BEGIN PGP MESSAGE-----\n\n{text}\n-----END PGP MESSAGE-----")
}

fn rendered(source: &str, directory: &Path, must: bool) -> Result<Value, RenderError> {
    let program = directory.join("gpg");
    fs::write(&program, PROGRAM).expect("the directory is ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("the file is ours");
    let mut renderers = Renderers::default();
    renderers.gpg.program = program;
    renderers.gpg.key_directory = directory.to_owned();
    renderers.gpg.must_succeed = must;
    let context = Context {
        values: Vec::new(),
        functions: Arc::new(Registry::new()),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
    };
    render(source, "secret.sls", &renderers, &context)
}

fn sls(text: &str) -> String {
    let lines = message(text).replace('\n', "\n    ");
    format!("#!jinja|yaml|gpg\nplain: {{{{ 1 }}}}\nlist:\n  - a\n  - |\n    {lines}\n")
}

#[test]
fn messages_are_decrypted_wherever_they_stand() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = rendered(&sls("good secret"), directory.path(), true).expect("it renders");
    assert_eq!(data.get("plain"), Some(&Value::Int(1)));
    let list = data.get("list").and_then(Value::as_array).expect("a list");
    assert_eq!(list.first(), Some(&Value::from("a")));
    assert_eq!(
        list.get(1).and_then(Value::as_str).map(str::trim_end),
        Some("secret")
    );
}

#[test]
fn a_message_that_cannot_be_decrypted_is_an_error_or_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = rendered(&sls("bad"), directory.path(), true).expect_err("it is bad");
    assert_eq!(error.class, ErrorClass::Data);
    let data = rendered(&sls("bad"), directory.path(), false).expect("it stays");
    let list = data.get("list").and_then(Value::as_array).expect("a list");
    let kept = list.get(1).and_then(Value::as_str).expect("a text");
    assert_eq!(kept.trim_end(), message("bad"));
}

#[test]
fn gpg_is_not_started_without_a_message() {
    let directory = tempfile::tempdir().expect("a directory");
    let gone = directory.path().join("nothing");
    let mut renderers = Renderers::default();
    renderers.gpg.program = gone;
    let context = Context {
        values: Vec::new(),
        functions: Arc::new(Registry::new()),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
    };
    let data = render("#!yaml|gpg\na: b\n", "x.sls", &renderers, &context);
    assert_eq!(
        data,
        Ok(Value::Map(vec![(Value::from("a"), Value::from("b"))]))
    );
}
